"""The agent: its loop, prompts, answer formats, tool calls, prices and retry policy."""
