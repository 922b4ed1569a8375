"""The connections of a worker to its MCP servers. One thread has an event loop for all."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    ToolListChangedNotification,
)

from handoff_queue.shared.agent.tool import ToolFailed
from handoff_queue.shared.network.ssrf_guard import AddressRefused
from handoff_queue.shared.specialists.mcp_servers import AcceptedServer, Listing, with_values
from handoff_queue.workers.tools.hosted_tools import read_variables
from handoff_queue.workers.tools.mcp.http import create_http_client
from handoff_queue.workers.tools.mcp.response_size_limit import ByteAllowance
from handoff_queue.workers.tools.mcp.stdio import open_stdio_transport
from handoff_queue.workers.tools.mcp.tool_pinning import check_pinned, fetch_listing

CLOSE_S = 5.0
"""Longest time in seconds to close all connections."""
Value = TypeVar("Value")

for _name in ("mcp", "httpx2", "httpcore2"):  # their lines hold texts of servers, and URLs
    logging.getLogger(_name).propagate = False
    logging.getLogger(_name).addHandler(logging.NullHandler())


@dataclass(slots=True)
class _Connection:
    """A connection. A task of its own opens and closes it."""

    server: AcceptedServer
    ready: asyncio.Future[Client]
    close_event: asyncio.Event = field(default_factory=asyncio.Event)
    """Set: the task closes the connection."""
    end_event: asyncio.Event = field(default_factory=asyncio.Event)
    """Set: the process of the server has ended."""
    allowance: ByteAllowance = field(default_factory=ByteAllowance)
    listing: Listing | None = None
    """The tools that the server lists. None: they are not read yet, or have changed."""
    in_flight: int = 0
    is_retired: bool = False
    task: asyncio.Task[None] | None = None

    @property
    def is_usable(self) -> bool:
        """Return whether a further call may use the connection. After a flood, its streams have
        ended, and the server could not tell of a changed tool.
        """
        return not self.end_event.is_set() and not self.allowance.is_exceeded


class McpConnections:
    """The connections of one process, by the file and the name of the server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._open_connections: dict[tuple[str, str], _Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def call(self, server: AcceptedServer, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool, from any thread.

        Raises:
            ToolFailed: there is no result. The message never has a value of the environment,
                unless the server has put it there.
        """
        return self._run(self._call(server, tool, arguments))

    def fetch_listing(self, server: AcceptedServer) -> Listing:
        """Return the tools that a server lists now.

        Raises:
            ToolFailed: the server does not list them.
        """
        return self._run(self._list_now(server))

    def close(self) -> None:
        """End all connections and the servers that were started."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._close_all(), loop).result(2 * CLOSE_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(CLOSE_S)
        if not thread.is_alive():
            loop.close()

    def _run(self, coroutine: Coroutine[Any, Any, Value]) -> Value:
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._start_loop_once()).result()
        except CancelledError:
            raise ToolFailed("the worker stops: the call has no result") from None

    def _start_loop_once(self) -> asyncio.AbstractEventLoop:
        """Return the event loop. Its thread lives as long as the process, because the kernel ends
        a server with the thread that has started it.
        """
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="mcp", daemon=True
                )
                self._thread.start()
            return self._loop

    async def _close_all(self) -> None:
        for connection in list(self._open_connections.values()):
            self._retire(connection)
            connection.close_event.set()
        if self._tasks:
            _, late_tasks = await asyncio.wait(self._tasks, timeout=CLOSE_S)
            for task in late_tasks:
                task.cancel()
        await asyncio.get_running_loop().shutdown_asyncgens()

    async def _list_now(self, server: AcceptedServer) -> Listing:
        connection = self._get_connection(server)
        try:
            async with asyncio.timeout(server.config.timeout_s):
                return await fetch_listing(await asyncio.shield(connection.ready))
        except Exception as error:  # noqa: BLE001 (a foreign server may cause any)
            raise _build_failure(connection, error) from None
        finally:
            self._retire(connection)

    async def _call(
        self, server: AcceptedServer, tool: str, arguments: dict[str, Any]
    ) -> CallToolResult:
        connection = self._get_connection(server)
        connection.in_flight += 1
        connection.allowance.refill()
        may_have_run = False
        try:
            async with asyncio.timeout(server.config.timeout_s):
                client = await asyncio.shield(connection.ready)
                if connection.listing is None:
                    connection.listing = await fetch_listing(client)
                check_pinned(server, connection.listing, tool)
                params = CallToolRequestParams(name=tool, arguments=arguments)
                may_have_run = True
                return await client.session.send_request(
                    CallToolRequest(params=params), CallToolResult
                )
        except ToolFailed:
            raise
        except Exception as error:  # noqa: BLE001 (a foreign server may cause any)
            if not isinstance(error, MCPError) or error.code == CONNECTION_CLOSED:
                self._retire(connection)
            failure = _build_failure(connection, error)
            if may_have_run:
                failure = ToolFailed(f"{failure}; the call may have run")
            raise failure from None
        finally:
            connection.in_flight -= 1
            _close_if_unused(connection)

    def _get_connection(self, server: AcceptedServer) -> _Connection:
        """Return the open connection to a server, or a new one."""
        key = str(server.file), server.name
        known = self._open_connections.get(key)
        if known is not None and known.is_usable:
            return known
        if known is not None:
            self._retire(known)
        connection = _Connection(server, asyncio.get_running_loop().create_future())
        connection.task = asyncio.create_task(_keep_open(connection))
        self._tasks.add(connection.task)
        connection.task.add_done_callback(self._tasks.discard)
        self._open_connections[key] = connection
        return connection

    def _retire(self, connection: _Connection) -> None:
        """Give the connection to no further call. It closes after its last call."""
        connection.is_retired = True
        key = str(connection.server.file), connection.server.name
        if self._open_connections.get(key) is connection:
            del self._open_connections[key]
        _close_if_unused(connection)


def _close_if_unused(connection: _Connection) -> None:
    if connection.is_retired and connection.in_flight == 0:
        connection.close_event.set()


async def _keep_open(connection: _Connection) -> None:
    """Open a connection, and close it when it is over. An error reaches the waiting calls."""

    async def on_message(message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            connection.listing = None

    async def open_connection() -> None:
        async with (
            _open_transport(connection) as transport,
            Client(transport, message_handler=on_message, cache=None) as client,
        ):
            connection.ready.set_result(client)
            await connection.close_event.wait()

    opening = asyncio.create_task(open_connection())
    stopping = asyncio.create_task(connection.close_event.wait())
    await asyncio.wait((opening, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not connection.ready.done():
        opening.cancel()
    stopping.cancel()
    (error,) = await asyncio.gather(opening, return_exceptions=True)
    connection.end_event.set()
    if not connection.ready.done():
        connection.ready.set_exception(_find_first_cause(error or OSError("closed")))
        connection.ready.exception()  # a call may have stopped waiting


@asynccontextmanager
async def _open_transport(connection: _Connection) -> AsyncIterator[Any]:
    """Yield the transport of a server, with the values of its variables.

    Raises:
        ToolFailed: a variable is not set.
    """
    server, config = connection.server, connection.server.config
    variables = read_variables(server.name, config.variables)
    if config.url is None:
        environment = {name: variables[name] for name in config.env}
        environment.setdefault("PATH", os.environ.get("PATH", os.defpath))
        yield open_stdio_transport(
            config.command,
            environment,
            server.file.parent.resolve(),
            connection.allowance,
            connection.end_event,
        )
        return
    headers: dict[str, str] = {}
    for name, value in config.headers.items():
        headers[name] = with_values(value, variables)
    async with create_http_client(
        headers, connection.allowance, allow_private=config.allow_private
    ) as client:
        yield streamable_http_client(config.url, http_client=client)


def _find_first_cause(error: BaseException) -> BaseException:
    """Return the first error that is not a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _build_failure(connection: _Connection, error: BaseException) -> ToolFailed:
    """Return the error of a call in one line for the model."""
    server, cause = connection.server, _find_first_cause(error)
    if isinstance(cause, ToolFailed):
        return cause
    if connection.allowance.is_exceeded:
        why = "the server has sent too much, and was stopped"
    elif isinstance(cause, TimeoutError):
        why = f"the server did not answer within {server.config.timeout_s:g} s"
    elif isinstance(cause, AddressRefused):
        why = f"refused: {cause}"
    elif isinstance(cause, MCPError) and cause.code != CONNECTION_CLOSED:
        why = f"the server refused the call: {' '.join(cause.message.split())[:300]}"
    elif connection.end_event.is_set() or isinstance(cause, MCPError):
        why = "the server has ended"
    else:
        why = f"the server has failed ({type(cause).__name__})"
    return ToolFailed(f"{server.name}: {why}")
