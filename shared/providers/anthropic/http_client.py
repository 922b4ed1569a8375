"""An HTTP client for the SDK that reports whether a request was sent."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import aiohttp
import anthropic
import httpx2


@dataclass
class RequestProgress:
    """Progress of the requests of one asyncio task."""

    has_begun: bool = False
    """True if the first bytes of a request were written to a connection to the server."""


_CURRENT: ContextVar[RequestProgress | None] = ContextVar("sending", default=None)


def watch_sending() -> RequestProgress:
    """Return the progress of all later requests of the current asyncio task."""
    sending = RequestProgress()
    _CURRENT.set(sending)
    return sending


class WatchedClient(anthropic.DefaultAioHttpClient):
    """The SDK's client over aiohttp. It sets `has_begun` in the progress that `watch_sending`
    returned.

    aiohttp reports the first part of a request's body just before it writes the headers and
    this part. It does not report a CONNECT request to a proxy.
    """

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
    watched: httpx2.AsyncBaseTransport = transport
    return watched


async def _mark(*_: object) -> None:
    sending = _CURRENT.get()
    if sending is not None:
        sending.has_begun = True


_TRACE = aiohttp.TraceConfig()
_TRACE.on_request_chunk_sent.append(_mark)
_TRACE.freeze()
