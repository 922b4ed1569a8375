"""`handoff mcp`: the queue as an MCP server."""

from __future__ import annotations

import asyncio
import signal
from typing import Annotated

import typer

from handoff_queue.shared.settings.optional_packages import check_extra
from handoff_queue.shared.types.api_tokens import AccessLevel
from handoff_queue.supervisor.cli.connection import connect_to_broker, get_user
from handoff_queue.supervisor.cli.errors import OK


def mcp(
    access: Annotated[
        AccessLevel,
        typer.Option(
            metavar="LEVEL",
            help="What the client may do: read, submit or operate. With submit, it cannot approve.",
        ),
    ] = AccessLevel.OPERATE,
    tenant: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The only tenant that the client sees. Default: every tenant."
        ),
    ] = None,
) -> int:
    """Serve the queue to one MCP client over stdin and stdout.

    The client starts the command, and ends it by closing stdin. Over the network, clients use
    the address /mcp of `handoff serve`.

      handoff mcp --access submit --tenant acme
    """
    check_extra("mcp", "handoff mcp", "mcp")
    from handoff_queue.shared.observability.logs import configure_logging
    from handoff_queue.supervisor.client.argument_types import check_tenant
    from handoff_queue.supervisor.client.async_client import AsyncClient
    from handoff_queue.supervisor.serve.mcp.stdio import serve_stdio

    if tenant is not None:
        check_tenant(tenant)
    jobs = connect_to_broker()
    jobs.store.health.check_no_cluster()
    for kind in (signal.SIGINT, signal.SIGTERM):  # the state is in Redis: there is nothing to save
        signal.signal(kind, signal.SIG_DFL)
    configure_logging(jobs.settings)
    asyncio.run(serve_stdio(AsyncClient(jobs), jobs.settings, get_user("mcp"), access, tenant))
    return OK
