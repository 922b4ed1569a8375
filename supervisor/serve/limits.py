"""Limits of the server: the bytes of a body, and the requests of a token in a minute."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from handoff_queue.shared.store.store import Store
from handoff_queue.supervisor.serve.problems import Problem, response_of


class BodyLimit:
    """ASGI middleware that refuses a body of more than `most_bytes`.

    It counts the bytes while they arrive, so that it also refuses a long body without a length.
    """

    def __init__(self, app: ASGIApp, most_bytes: int) -> None:
        self._app = app
        self._most_bytes = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        length = Headers(scope=scope).get("content-length", "0")
        if not length.isdecimal() or int(length[:18]) > self._most_bytes:
            await response_of(self._too_large())(scope, receive, send)
            return
        received = 0

        async def receive_counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._most_bytes:
                raise self._too_large()
            return message

        await self._app(scope, receive_counted, send)

    def _too_large(self) -> Problem:
        return Problem(
            413,
            f"the body has more than {self._most_bytes:,} bytes: send fewer or smaller documents, "
            "or raise HANDOFF_SERVE_MAX_BODY_BYTES",
            headers={"Connection": "close"},
        )


def count_request(store: Store, caller: str, most: int) -> None:
    """Count a request of a caller.

    Raises:
        Problem: the caller has sent more than `most` requests in this minute.
        StoreUnavailable: Redis cannot be reached.
    """
    count, left_s = store.request_counts.count(caller)
    if count > most:
        raise Problem(
            429,
            f"more than {most:,} requests in a minute: wait {left_s:.0f} s, "
            "or raise HANDOFF_SERVE_REQUESTS_PER_MINUTE",
            headers={"Retry-After": str(int(left_s) + 1)},
        )
