"""Limits of the server: the bytes and the end of a body, wrong tokens, and the open streams of a
token. A token also has a number of requests in a minute, and at the same time.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import ParamSpec, TypeVar

from python_multipart.multipart import parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from handoff_queue.shared.store.store import Store
from handoff_queue.supervisor.serve.problem_documents import Problem, build_response, try_later

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")

MAX_CHECKS = 2
"""Checks of large values of one caller that run at the same time. A process has 40 threads."""
MAX_REQUESTS = 4
"""Requests of one caller that a process works on at the same time. Its further requests wait.
Streams, and requests that wait for the end of a job, do not count.
"""
MAX_WAITING = 500
"""Requests or checks of one caller that wait for their turn. Further requests get status 429."""
BODY_S = 60.0
"""Seconds in which the next bytes of a body must arrive."""
DRAIN_S = 5.0
"""Seconds for which the rest of a refused body is read and dropped."""
MAX_WRONG_TOKENS = 30
"""Most wrong tokens of one address in a minute. The next wrong tokens get status 429."""
_LINE_END = b"\r\n"
_MAX_WHITE_SPACE = 64
"""Bytes of white space that may follow the end of a form. Clients send at most two line ends."""
_NETWORK_BITS = 64
"""Bits of an IPv6 address that one client cannot choose."""
_FORM_CHARSETS = (b"utf-8", b"utf8", b"us-ascii", b"ascii")
"""Charsets of a form. With others, such as punycode, 1 MB takes minutes in the event loop."""
ACCESS_CHECKS = "handoff_queue.access_checks"
"""The key in the scope of a request with the checks that its caller still has access."""


class BodyLimit:
    """ASGI middleware that refuses a body of more than `max_bytes`.

    It counts the bytes while they arrive, so that it also refuses a long body without a length.

    A refusal closes the connection. Before that, the rest of the body is read and dropped for
    `DRAIN_S`. Otherwise the kernel resets the connection, and the client may lose the response.
    """

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        length = headers.get("content-length", "0")
        ending = _EndOfRequest(receive, send, has_body=_has_body(headers))
        receive, send = ending.receive, ending.send
        if "transfer-encoding" in headers and "content-length" in headers:
            await build_response(_build_two_lengths_problem())(scope, receive, send)
            return
        if not length.isdecimal() or int(length[:18]) > self._max_bytes:
            await build_response(self._build_too_large_problem())(scope, receive, send)
            return
        received_bytes = 0

        async def receive_counted() -> Message:
            nonlocal received_bytes
            message = await receive()
            received_bytes += len(message.get("body", b""))
            if received_bytes > self._max_bytes:
                raise self._build_too_large_problem()
            return message

        await self._app(scope, receive_counted, send)

    def _build_too_large_problem(self) -> Problem:
        return Problem(
            413,
            f"the body has more than {self._max_bytes:,} bytes: send fewer or smaller documents, "
            "or raise HANDOFF_SERVE_MAX_BODY_BYTES",
            headers={"Connection": "close"},
        )


class _EndOfRequest:
    """Reads the rest of a body before a response closes the connection."""

    def __init__(self, receive: Receive, send: Send, *, has_body: bool) -> None:
        self._receive = receive
        self._send = send
        self._is_read = not has_body
        self._closes = False

    async def receive(self) -> Message:
        """Receive a message of the request."""
        message = await self._receive()
        self._is_read = not message.get("more_body", False)  # also without a connection
        return message

    async def send(self, message: Message) -> None:
        """Send a message of the response. Before the last one, drop the rest of the body."""
        if message["type"] == "http.response.start":
            self._closes = Headers(raw=message["headers"]).get("connection") == "close"
        is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if not (is_last and self._closes) or self._is_read:
            await self._send(message)
            return
        await self._send({**message, "more_body": True})
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                while not self._is_read:
                    await self.receive()
        await self._send({"type": "http.response.body", "body": b""})


def _has_body(headers: Headers) -> bool:
    """Return whether a request has a body, by its headers."""
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def _build_two_lengths_problem() -> Problem:
    """Return the problem of a request whose body a proxy may end at another place than this server.
    The rest of the body would then be the next request of another user of the proxy.
    """
    return Problem(
        400,
        "Transfer-Encoding and Content-Length together: send only one",
        headers={"Connection": "close"},
    )


class WholeBody:
    """ASGI middleware that refuses a body that ends early, and a body in another charset than
    UTF-8. It also refuses a body whose caller has lost its access before the end of the body.

    The parser of forms leaves out the last part of a form without its closing boundary. So a
    document would be lost without an error. Text after the closing boundary is refused, too,
    except white space, which some clients send.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        checks: list[Callable[[], Awaitable[None]]] = []
        scope[ACCESS_CHECKS] = checks
        headers = Headers(scope=scope)
        media_type, options = parse_options_header(headers.get("content-type", ""))
        if options.get(b"charset", b"utf-8").lower() not in _FORM_CHARSETS:
            await build_response(_build_charset_problem())(scope, receive, send)
            return
        closing = _find_closing_boundary(media_type, options.get(b"boundary"))
        end, is_whole = _LINE_END, not _has_body(headers)

        async def receive_checked() -> Message:
            nonlocal end, is_whole
            if is_whole:
                return await receive()
            try:
                async with asyncio.timeout(BODY_S):
                    message = await receive()
            except TimeoutError as error:
                problem = f"no bytes of the body for {BODY_S:.0f} s: send it again"
                raise Problem(408, problem, headers={"Connection": "close"}) from error
            if message["type"] == "http.disconnect":
                raise Problem(400, "the body ends early: send it again")
            end = (end + message.get("body", b""))[-len(closing) - _MAX_WHITE_SPACE :]
            is_whole = not message.get("more_body", False)
            if is_whole and not end.rstrip().endswith(closing):
                raise Problem(400, "the form ends before its closing boundary: send it again")
            if is_whole:
                for check in checks:
                    await check()
            return message

        await self._app(scope, receive_checked, send)


def _build_charset_problem() -> Problem:
    return Problem(
        415, "the charset of the body is not UTF-8: send UTF-8", headers={"Connection": "close"}
    )


def _find_closing_boundary(media_type: bytes, boundary: bytes | None) -> bytes:
    """Return the text that ends a form with several parts; b'' for other bodies."""
    if media_type != b"multipart/form-data" or boundary is None:
        return b""
    return _LINE_END + b"--" + boundary + b"--"


class OpenStreams:
    """Counts the open streams of each caller of this process. An event loop uses it."""

    def __init__(self, limit: int) -> None:
        """Begin to count.

        Args:
            limit: the most streams of one caller.
        """
        self._most = limit
        self._stream_counts: Counter[str] = Counter()

    @contextmanager
    def count_stream(self, caller: str) -> Iterator[None]:
        """Count a stream of a caller as long as the block runs.

        Raises:
            Problem: the caller has the most streams that it may have.
        """
        if self._stream_counts[caller] >= self._most:
            raise try_later(
                429,
                f"{self._most:,} streams are open: close some, or raise HANDOFF_SERVE_STREAMS",
                wait_s=1,
            )
        self._stream_counts[caller] += 1
        try:
            yield
        finally:
            self._stream_counts[caller] -= 1
            if not self._stream_counts[caller]:
                del self._stream_counts[caller]


class CallerTurns:
    """Lets each caller do a few things at the same time. Its further requests wait, without a
    thread of this process. So one caller cannot use up the threads and the memory of the others.
    """

    def __init__(self, limit: int = MAX_CHECKS) -> None:
        """Begin without a turn.

        Args:
            limit: turns of one caller at the same time.
        """
        self._limit = limit
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._users: Counter[str] = Counter()

    async def begin(self, caller: str) -> None:
        """Wait for a turn of a caller. Each turn needs an `end`.

        Raises:
            Problem: too many requests of the caller wait.
        """
        if self._users[caller] >= self._limit + MAX_WAITING:
            raise try_later(
                429, f"more than {MAX_WAITING:,} requests wait: read the responses first", wait_s=1
            )
        turns = self._turns.setdefault(caller, asyncio.Semaphore(self._limit))
        self._users[caller] += 1
        try:
            await turns.acquire()
        except BaseException:
            self._forget(caller)
            raise

    def end(self, caller: str) -> None:
        """End a turn of a caller."""
        self._turns[caller].release()
        self._forget(caller)

    async def run(
        self,
        caller: str,
        function: Callable[Arguments, Value],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Value:
        """Run a function in a thread, when it is the turn of the caller."""
        await self.begin(caller)
        try:
            return await run_in_threadpool(function, *args, **kwargs)
        finally:
            self.end(caller)

    def _forget(self, caller: str) -> None:
        self._users[caller] -= 1
        if not self._users[caller]:
            del self._users[caller], self._turns[caller]


class RequestTurn:
    """The turn of one request. It ends when the client has read the response, or when the request
    only waits.
    """

    def __init__(self, turns: CallerTurns, caller: str) -> None:
        self._turns = turns
        self._caller = caller
        self._has_turn = False

    async def begin(self) -> None:
        """Wait for the turn. Raises as `CallerTurns.begin`."""
        if not self._has_turn:
            await self._turns.begin(self._caller)
            self._has_turn = True

    def end(self) -> None:
        """Let another request of the caller begin."""
        if self._has_turn:
            self._has_turn = False
            self._turns.end(self._caller)


def count_request(store: Store, caller: str, limit: int) -> None:
    """Count a request of a caller.

    Raises:
        Problem: the caller has sent more than `limit` requests in this minute.
        StoreUnavailable: Redis cannot be reached.
    """
    count, left_s = store.request_counts.count(caller)
    if count > limit:
        raise try_later(
            429,
            f"more than {limit:,} requests in a minute: wait {left_s:.0f} s, "
            "or raise HANDOFF_SERVE_REQUESTS_PER_MINUTE",
            wait_s=int(left_s) + 1,
        )


def count_wrong_token(store: Store, address: str | None) -> None:
    """Count a wrong token of an address. All replicas share the count.

    A valid token still works, so an attacker cannot lock out another user of the address.

    Raises:
        Problem: the address has sent more than `MAX_WRONG_TOKENS` in this minute.
        StoreUnavailable: Redis cannot be reached.
    """
    count, left_s = store.request_counts.count(f"wrong-{_get_sender(address)}")
    if count > MAX_WRONG_TOKENS:
        raise try_later(
            429,
            f"more than {MAX_WRONG_TOKENS} wrong tokens in a minute from this address: wait"
            f" {left_s:.0f} s. A valid token still works",
            wait_s=int(left_s) + 1,
        )


def _get_sender(address: str | None) -> str:
    """Return the part of an address that one client cannot change, without colons."""
    ip_address = parse_address(str(address))
    if ip_address is None:
        return "unknown"
    if ip_address.version == 4:
        return str(ip_address)
    network = ipaddress.ip_network((ip_address, _NETWORK_BITS), strict=False)
    return str(network.network_address).replace(":", "-")


def parse_address(address: str) -> Address | None:
    """Return an address without its zone. An IPv4 address in an IPv6 address is an IPv4 address.
    None: the text is not an address.
    """
    try:
        ip_address = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    if isinstance(ip_address, ipaddress.IPv6Address) and ip_address.ipv4_mapped is not None:
        return ip_address.ipv4_mapped
    return ip_address
