"""The MCP server over stdin and stdout, for a client that starts the server as a process."""

from __future__ import annotations

from typing import Any

import anyio
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.api_tokens import AccessLevel
from handoff_queue.shared.types.audit import Actor
from handoff_queue.supervisor.client.async_client import AsyncClient
from handoff_queue.supervisor.serve.authentication import (
    Access,
    Caller,
    TokenChecks,
    check_access_level,
)
from handoff_queue.supervisor.serve.mcp.server import LISTEN, Context, make_server
from handoff_queue.supervisor.serve.request_limits import OpenStreams


async def serve_stdio(
    jobs: AsyncClient, settings: Settings, actor: Actor, level: AccessLevel, tenant: str | None
) -> None:
    """Serve one client until it closes stdin, and answer its last calls.

    Args:
        actor: the user of the operating system, for the audit.
        level: access level of the client.
        tenant: the only tenant that the client sees; None: all tenants.
    """
    caller = Caller(actor.name, level, tenant, None, actor.address, is_process=True)
    checks = TokenChecks(jobs.client.store.api_tokens)
    streams = OpenStreams(settings.serve_streams)

    def get_access(_: Context, needed_level: AccessLevel) -> Access:
        check_access_level(caller, needed_level)
        return Access(jobs.acting_as(actor), settings, caller, checks, streams)

    server = make_server(get_access)
    calls = OpenCalls()
    async with jobs, stdio_server() as (incoming, outgoing), anyio.create_task_group() as tasks:
        send_in, receive_in = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        send_out, receive_out = anyio.create_memory_object_stream[SessionMessage](0)

        async def read() -> None:
            async with send_in, incoming:
                async for message in incoming:
                    calls.record_message(message)
                    await send_in.send(message)
                await calls.wait_until_answered()

        async def write() -> None:
            async with outgoing, receive_out:
                async for message in receive_out:
                    await outgoing.send(message)
                    calls.record_message(message)

        tasks.start_soon(read)
        tasks.start_soon(write)
        await server.run(receive_in, send_out, server.create_initialization_options())


class OpenCalls:
    """The calls of a client that have no answer yet. The package `mcp` drops them at the end of
    stdin. A stream of notifications has no end, so it does not count.
    """

    def __init__(self) -> None:
        self._open_calls: set[Any] = set()
        self._change_event = anyio.Event()

    def record_message(self, message: SessionMessage | Exception) -> None:
        """Record a message of the client or of the server."""
        match getattr(message, "message", None):
            case JSONRPCRequest(method=method, id=call) if method != LISTEN:
                self._open_calls.add(call)
            case JSONRPCNotification(
                method="notifications/cancelled", params={"requestId": str() | int() as call}
            ):
                self._end(call)  # a cancelled call gets no answer
            case JSONRPCResponse(id=call) | JSONRPCError(id=call):
                self._end(call)
            case _:
                pass

    async def wait_until_answered(self) -> None:
        """Wait until each call has its answer. A call takes a minute at most."""
        while self._open_calls:
            await self._change_event.wait()
            self._change_event = anyio.Event()

    def _end(self, call: Any) -> None:
        self._open_calls.discard(call)
        self._change_event.set()
