"""Prints the tools that the MCP servers of a specialist's file list now, as JSON.

`handoff specialists --accept-mcp FILE` runs `python -m handoff_queue.workers.tools.mcp.listing
FILE`, because the supervisor's room does not import the code of the workers.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from handoff_queue.shared.agent.tool import ToolFailed
from handoff_queue.shared.specialists.mcp_servers import AcceptedServer, read_servers
from handoff_queue.shared.specialists.specialist_files import MCP, parse
from handoff_queue.shared.types.errors import HandoffError, UserError
from handoff_queue.workers.tools.mcp.connections import McpConnections


def read_listings(file: Path) -> dict[str, dict[str, object]]:
    """Return the listing of each server of a file, with the tools that the file names.

    Raises:
        UserError: a server does not list a tool, or does not answer.
    """
    servers, _ = read_servers(parse(file).fields.get(MCP))
    connections = McpConnections()
    listings: dict[str, dict[str, object]] = {}
    try:
        for name, config in servers.items():
            server = AcceptedServer(name, config, {}, file.resolve())
            try:
                listed_tools = connections.fetch_listing(server)
            except ToolFailed as error:
                raise UserError(str(error)) from None
            if missing := [tool for tool in config.tools if tool not in listed_tools]:
                known = ", ".join(sorted(listed_tools)[:20]) or "none"
                raise UserError(
                    f"{name}: the server has no tool {missing[0]!r}: name one of: {known}"
                )
            listings[name] = {tool: listed_tools[tool] for tool in config.tools}
    finally:
        connections.close()
    return listings


def main(arguments: list[str]) -> int:
    """Print the listings, or one line about the error."""
    try:
        listings = read_listings(Path(arguments[0]))
    except HandoffError as error:
        sys.stderr.write(f"{error}\n")
        return UserError.exit_code
    sys.stdout.write(json.dumps(listings))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
