"""The MCP server over stdin and stdout, for a client that starts the server as a process."""

from __future__ import annotations

from mcp.server.stdio import stdio_server

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.access import Actor, ApiRole
from handoff_queue.supervisor.client.async_client import AsyncClient
from handoff_queue.supervisor.serve.access import Access, Caller, TokenChecks
from handoff_queue.supervisor.serve.mcp.server import Context, make_server


async def serve_stdio(jobs: AsyncClient, settings: Settings, actor: Actor) -> None:
    """Serve one client until it closes stdin. The client may do everything, as a command may.

    Args:
        actor: the user of the operating system, for the audit.
    """
    caller = Caller(actor.name, ApiRole.ADMIN, None, None, actor.address)
    checks = TokenChecks(jobs.client.store.api_tokens)

    def access_of(_: Context, __: ApiRole) -> Access:
        return Access(jobs.acting_as(actor), settings, caller, checks)

    server = make_server(access_of)
    async with jobs, stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())
