"""The runner `agent-sdk`: the CLI of the Claude Agent SDK asks for each model call of a handoff,
and the worker makes the call.

The CLI is Claude Code, the command-line program `claude` that the package `claude-agent-sdk`
contains. The SDK runs it as a subprocess.
"""
