"""An HTTP client for the SDK that reports whether a request was sent, and limits responses."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import aiohttp
import anthropic
import httpx2

from handoff_queue.shared.types.errors import ModelUnreachable

MAX_RESPONSE_BYTES = 50_000_000
"""Most bytes of a response, without its compression. A stream of 128,000 output tokens has about
17 MB, because each token can be an event.
"""


@dataclass
class RequestProgress:
    """Progress of the requests of one asyncio task."""

    has_begun: bool = False
    """True if the first bytes of a request were written to a connection to the server."""


_PROGRESS: ContextVar[RequestProgress | None] = ContextVar("request_progress", default=None)


def watch_request_progress() -> RequestProgress:
    """Return the progress of all later requests of the current asyncio task."""
    progress = RequestProgress()
    _PROGRESS.set(progress)
    return progress


class WatchedClient(anthropic.DefaultAioHttpClient):
    """The SDK's client over aiohttp. It sets `has_begun` in the progress that
    `watch_request_progress` returned. The body of a response ends with an error after
    `MAX_RESPONSE_BYTES`, also the body of an error or a file.

    aiohttp reports the first part of a request's body just before it writes the headers and
    this part. It does not report a CONNECT request to a proxy.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(event_hooks={"response": [_limit_bytes]}, **options)

    def _init_transport(self, *args: Any, **options: Any) -> httpx2.AsyncBaseTransport:
        return _add_trace(super()._init_transport(*args, **options))

    def _init_proxy_transport(self, *args: Any, **options: Any) -> httpx2.AsyncBaseTransport:
        return _add_trace(super()._init_proxy_transport(*args, **options))


def _add_trace(transport: Any) -> httpx2.AsyncBaseTransport:
    """Add a trace to the aiohttp session that the SDK's transport opens with its first request."""

    def open_session() -> aiohttp.ClientSession:
        transport.client = None
        session: aiohttp.ClientSession = transport.get_client()
        session.trace_configs.append(_TRACE)
        return session

    transport.client = open_session
    session_transport: httpx2.AsyncBaseTransport = transport
    return session_transport


async def _limit_bytes(response: httpx2.Response) -> None:
    """Limit the bytes that any reader of this response gets. `aread` uses `aiter_bytes`, too.

    The text of a response is UTF-8, and the charset that the server declares does not count. With
    punycode, 1 MB would take minutes in the event loop of all calls.
    """
    response.encoding = "utf-8"
    read_bytes = response.aiter_bytes

    async def read_part(chunk_size: int | None = None) -> AsyncGenerator[bytes, None]:
        count = 0
        async with aclosing(read_bytes(chunk_size)) as parts:
            async for part in parts:
                count += len(part)
                if count > MAX_RESPONSE_BYTES:
                    raise ModelUnreachable(
                        f"the model's server sent more than {MAX_RESPONSE_BYTES:,} bytes"
                    )
                yield part

    response.aiter_bytes = read_part  # type: ignore[method-assign]


async def _mark_begun(*_: object) -> None:
    progress = _PROGRESS.get()
    if progress is not None:
        progress.has_begun = True


_TRACE = aiohttp.TraceConfig()
_TRACE.on_request_chunk_sent.append(_mark_begun)
_TRACE.freeze()
