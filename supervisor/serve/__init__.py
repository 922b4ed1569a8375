"""The HTTP server of `handoff serve`: the API below `/v1`, the console, MCP and the metrics."""
