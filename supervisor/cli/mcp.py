"""`handoff mcp`: the queue as an MCP server."""

from __future__ import annotations

import asyncio
import signal

from handoff_queue.shared.settings.optional_packages import check_extra
from handoff_queue.supervisor.cli.connection import client_of_broker, this_user
from handoff_queue.supervisor.cli.errors import OK


def mcp() -> int:
    """Serve the queue to one MCP client over stdin and stdout.

    The client starts the command, and ends it by closing stdin. Over the network, clients use
    the address /mcp of `handoff serve`.

      handoff mcp
    """
    check_extra("mcp", "handoff mcp", "mcp")
    from handoff_queue.shared.observability.logs import configure_logging
    from handoff_queue.supervisor.client.async_client import AsyncClient
    from handoff_queue.supervisor.serve.mcp.stdio import serve_stdio

    jobs = client_of_broker()
    jobs.store.health.refuse_a_cluster()
    for kind in (signal.SIGINT, signal.SIGTERM):  # the state is in Redis: there is nothing to save
        signal.signal(kind, signal.SIG_DFL)
    configure_logging(jobs.settings)
    asyncio.run(serve_stdio(AsyncClient(jobs), jobs.settings, this_user("mcp")))
    return OK
