"""Celery's consumer and kombu's Redis transport, with what they do too often left out.

A profile of a busy worker showed more time in these two habits than in everything of ours: one message for every single event, and a
new Redis client (a table of 300 entries) for every single message that is taken or acknowledged.
"""

from __future__ import annotations

from typing import Any

from celery.worker.consumer import Consumer
from kombu.transport import redis as redis_transport

EVENTS_EVERY_S = 0.1
"""Task events wait this long for company; whoever watches looks once a second at most. Celery's own buffer limit (24) still holds."""


class WorkerConsumer(Consumer):  # type: ignore[misc]
    """Celery's consumer minus gossip and mingle, also for people who type plain `celery worker`, with events sent together.

    Workers have nothing to tell each other, and gossip and mingle leave pidbox keys behind and slow down a reconnect.
    """

    def __init__(self, *args: Any, worker_options: dict[str, Any] | None = None, **kwargs: Any) -> None:
        self._is_flush_due = False
        super().__init__(*args, worker_options={**(worker_options or {}), "without_gossip": True, "without_mingle": True}, **kwargs)

    def on_send_event_buffered(self) -> None:
        """From any thread, for every event."""
        if self.hub and not self._is_flush_due:
            self._is_flush_due = True
            self.hub.call_soon(self.hub.call_later, EVENTS_EVERY_S, self._flush_now)

    def shutdown(self) -> None:
        self._flush_now()
        super().shutdown()

    def _flush_now(self) -> None:
        self._is_flush_due = False
        self._flush_events()


class _OneClient(redis_transport.Channel):  # type: ignore[misc]
    """A channel that keeps the client it makes for a pool. A client is nothing but a view of its pool, and safe between threads."""

    _view: Any = None

    def _create_client(self, asynchronous: bool = False) -> Any:
        if asynchronous:
            return super()._create_client(asynchronous=True)
        if self._view is None or self._view.connection_pool is not self.pool:
            self._view = super()._create_client()
        return self._view


class _OneSentinelClient(_OneClient, redis_transport.SentinelChannel):  # type: ignore[misc]
    """The same where sentinels say which server to use."""


class Transport(redis_transport.Transport):  # type: ignore[misc]
    """For redis:// and rediss://."""

    Channel = _OneClient


class SentinelTransport(redis_transport.SentinelTransport):  # type: ignore[misc]
    """For sentinel://."""

    Channel = _OneSentinelClient
