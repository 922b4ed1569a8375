"""The queue as an MCP server: over stdin and stdout, and at `/mcp` of `handoff serve`.

MCP is the Model Context Protocol (https://modelcontextprotocol.io). Its package takes a second to
import. So other modules of this project import only `route` and `stdio`, and `route` imports the
others at the first request.
"""
