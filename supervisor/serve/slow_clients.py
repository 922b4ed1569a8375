"""Clients that are slow on purpose: they read no response, or end no request.

Without a limit, the server would never free the memory of an unread response, nor its connection.
"""

from __future__ import annotations

import fcntl
import termios
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from h11 import LocalProtocolError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from handoff_queue.supervisor.serve.request_limits import RequestTurn

SLOW_S = 60.0
"""Seconds in which a client must read a piece of a response, or send the head of a request."""
PIECE = 65_536
"""Bytes of one piece. uvicorn waits for the client when it has more bytes than this to send."""
TURNS = "handoff_queue.turns"
"""The key in the scope of a request with the turns that the request has taken."""
_PIECES = "handoff_queue.pieces"
"""The key in the scope of a request with the number of messages that were sent."""


class PacedResponses:
    """ASGI middleware that sends a response in pieces, each when the client has read the piece
    before it. At the end of the response, the turn of the request ends. So a caller cannot make the
    server hold more responses than `MAX_REQUESTS`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        turns: list[RequestTurn] = []
        scope[TURNS], scope[_PIECES] = turns, 0

        async def send_in_pieces(message: Message) -> None:
            body = message.get("body", b"")
            starts = range(0, len(body), PIECE) or (0,)
            for start in starts:
                piece = message
                if len(starts) > 1:
                    has_more = start != starts[-1] or message.get("more_body", False)
                    part = body[start : start + PIECE]
                    piece = {"type": message["type"], "body": part, "more_body": has_more}
                try:
                    await send(piece)
                except LocalProtocolError:
                    return  # the body was not HTTP, so uvicorn has sent status 400 and closes
                scope[_PIECES] += 1

        try:
            await self._app(scope, receive, send_in_pieces)
        finally:
            for turn in turns:
                turn.end()


class SlowConnections:
    """Closes connections whose clients have made no progress for `SLOW_S`."""

    def __init__(self) -> None:
        self._progress: dict[Any, tuple[Any, float]] = {}
        """A connection -> its progress, and the monotonic time of this progress in seconds."""

    def close(self, connections: Iterable[Any], now: float) -> None:
        """Close the slow ones of uvicorn's connections. Call it every few seconds.

        Args:
            now: monotonic time in seconds.
        """
        still_open: dict[Any, tuple[Any, float]] = {}
        for connection in connections:
            progress = _find_progress(connection)
            if progress is None:
                continue
            last_progress, since = self._progress.get(connection, (None, now))
            if progress != last_progress:
                since = now
            if now - since > SLOW_S:
                connection.transport.abort()
            else:
                still_open[connection] = (progress, since)
        self._progress = still_open


def _find_progress(connection: Any) -> Any:
    """Return the progress of a slow client. None: the server does not wait for the client, or it
    reads a body, which has its own limit.
    """
    cycle = connection.cycle
    if cycle is None or cycle.response_complete:
        return (cycle, _read_send_queue_size(connection.transport))  # the next request
    if connection.flow.write_paused or connection.transport.is_closing():
        return (cycle, cycle.scope.get(_PIECES), _read_send_queue_size(connection.transport))
    return None


def _read_send_queue_size(transport: Any) -> bytes:
    """Return the number of bytes that the kernel keeps for a client, as a C integer. A client that
    reads slowly makes this number change long before the kernel takes another piece.
    """
    with suppress(OSError, ValueError):  # the socket is closed
        return fcntl.ioctl(transport.get_extra_info("socket"), termios.TIOCOUTQ, bytes(4))
    return b""
