"""`/mcp` of `handoff serve`: the MCP server over streamable HTTP, with the tokens of `/v1`.

Each request needs no earlier one, so that any replica answers it. Clients get JSON, and no stream
that the server opens.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from handoff_queue.shared.settings.optional_packages import check_extra
from handoff_queue.shared.types.json_values import JsonCounter
from handoff_queue.supervisor.serve.authentication import (
    Access,
    AppState,
    Caller,
    SharedState,
    authenticate_caller,
    build_access,
    check_access_level,
)
from handoff_queue.supervisor.serve.request_body import MAX_VALUES, build_too_many_values_problem

if TYPE_CHECKING:
    from handoff_queue.shared.types.api_tokens import AccessLevel

_BAD_REQUEST = 400
_INVALID_REQUEST = -32_600
"""JSON-RPC's code for a body that is not a request."""
_NO_MESSAGE = "the body must be one JSON-RPC request or notification"
_CALLER = "handoff_queue.caller"
"""The key of the caller in the scope of a request."""


class _Endpoint:
    """The MCP server of an application. It starts at the first request."""

    def __init__(self) -> None:
        self._starting = asyncio.Lock()
        self._is_stopping = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._application: ASGIApp | None = None

    async def get_application(self, state: AppState) -> ASGIApp:
        """Return the ASGI application, and start it if needed."""
        async with self._starting:
            if self._application is None:
                ready = asyncio.Event()
                self._running = asyncio.create_task(self._run(state, ready))
                await ready.wait()
        if self._application is None:
            assert self._running is not None
            await self._running
        assert self._application is not None
        return self._application

    async def stop(self) -> None:
        """End the server."""
        self._is_stopping.set()
        if self._running is not None:
            await self._running

    async def _run(self, state: AppState, ready: asyncio.Event) -> None:
        try:
            manager = await run_in_threadpool(_create_session_manager, state)
            async with manager.run():
                self._application = manager.handle_request
                ready.set()
                await self._is_stopping.wait()
        finally:
            ready.set()


def _create_session_manager(state: AppState) -> Any:
    """Return the session manager of the package `mcp`, whose import takes a second."""
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from handoff_queue.supervisor.serve.mcp.server import Context, make_server

    def get_access(context: Context, level: AccessLevel) -> Access:
        assert context.request is not None
        caller = context.request.scope[_CALLER]
        check_access_level(caller, level)
        return build_access(caller, state, "mcp")

    return StreamableHTTPSessionManager(
        make_server(get_access),
        json_response=True,
        stateless=True,
        max_request_body_size=state.settings.serve_max_body_bytes,
    )


class _AsgiResponse(Response):
    """A response that an ASGI application writes. An error is one line."""

    def __init__(self, application: ASGIApp) -> None:
        super().__init__()
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application read the request and write the response."""
        start: Message = {}

        async def send_one_line(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and message["status"] == _BAD_REQUEST:
                start = message
            elif start and message["type"] == "http.response.body":
                await Response(
                    _shorten_error(message["body"]), _BAD_REQUEST, media_type="application/json"
                )(scope, receive, send)
            else:
                await send(message)

        counter, values = JsonCounter(), 0

        async def receive_counted() -> Message:
            nonlocal values
            message = await receive()
            values += counter.count(message.get("body", b"")).values
            if values > MAX_VALUES:
                raise build_too_many_values_problem()
            return message

        await self._application(scope, receive_counted, send_one_line)


def _shorten_error(body: bytes) -> bytes:
    """Return an error of the package `mcp` in one line of JSON.

    For a body that is not a message, the package gives several lines for each kind of message. For
    a wrong header, it gives a text.
    """
    try:
        answer = json.loads(body)
    except ValueError:
        error = {"code": _INVALID_REQUEST, "message": body.decode(errors="replace")}
        return json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    try:
        if "\n" in answer["error"]["message"]:
            answer["error"] = {"code": _INVALID_REQUEST, "message": _NO_MESSAGE}
    except (KeyError, TypeError):
        return body
    return json.dumps(answer).encode()


@asynccontextmanager
async def _with_endpoint(app: FastAPI) -> AsyncIterator[None]:
    app.state.mcp = _Endpoint()
    yield
    await app.state.mcp.stop()


router = APIRouter(lifespan=_with_endpoint)


@router.post("/mcp", include_in_schema=False)
async def mcp(
    http: Request, caller: Annotated[Caller, Depends(authenticate_caller)], state: SharedState
) -> Response:
    """Serve one request of an MCP client."""
    check_extra("mcp", "/mcp", "mcp")
    http.scope[_CALLER] = caller
    return _AsgiResponse(await http.app.state.mcp.get_application(state))
