"""The queue as an MCP server: over stdin and stdout, and at `/mcp` of `handoff serve`.

MCP is the Model Context Protocol (https://modelcontextprotocol.io). Its package takes a second
to import, so only `route` and `stdio` are imported by other modules of this project, and `route`
imports the others at the first request.
"""
