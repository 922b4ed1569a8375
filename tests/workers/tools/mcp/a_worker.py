"""A worker that calls a tool of an MCP server, prints the pid of the server, and waits."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from mcp_types import TextContent

from handoff_queue.shared.specialists.mcp_servers import AcceptedServer, McpServer
from handoff_queue.workers.tools.mcp.connections import McpConnections
from tests.workers.tools.mcp import a_hostile_server


def main() -> None:
    command = (sys.executable, "-S", a_hostile_server.__file__, "pid")
    config = McpServer(command=command, tools=("act",), timeout_s=20.0)
    server = AcceptedServer("x", config, {"act": a_hostile_server.TOOL}, Path(__file__))
    (content,) = McpConnections().call(server, "act", {}).content
    assert isinstance(content, TextContent)
    print(content.text, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
