"""The queues of the whole fleet in Flower.

Flower itself lists the queues of the workers that answered its last inspection, and a person
starts an inspection by hand.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from flower.api.tasks import GetQueueLengths
from flower.urls import handlers
from flower.views.broker import BrokerView
from tornado.ioloop import IOLoop
from tornado.web import authenticated, url

from handoff_queue.shared.observability.logs import log_of
from handoff_queue.shared.settings.settings import load_settings, redis_url_of
from handoff_queue.shared.store.redis.connection import ONLOOKER_TIMEOUT_S
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.types.errors import HandoffError
from handoff_queue.shared.types.names import (
    ROLES_QUEUE,
    SUBMISSIONS_QUEUE,
    SUPERVISOR_QUEUE,
    UNROUTED_QUEUE,
)

ALWAYS_THERE = frozenset({SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE, ROLES_QUEUE, UNROUTED_QUEUE})

log = log_of(__name__)


def list_all_queues() -> None:
    """Have the Broker page and `/api/queues/length` of this process list all queues of the
    fleet.
    """
    pages = {BrokerView: _BrokerView, GetQueueLengths: _GetQueueLengths}
    for place, handler in enumerate(handlers):
        if isinstance(handler, tuple):
            pattern, page, *more = handler
        else:
            pattern, page, *more = _parts(handler)
        if page in pages:
            handlers[place] = url(pattern, pages[page], *more)


def queues_of_the_fleet(store: Store) -> list[str]:
    """Return the names of the queues of our own roles, of each queue that a live process
    serves, and of each queue to which a handoff was ever published. They are sorted.

    Raises:
        HandoffError: Redis cannot be read.
    """
    published = {depth.queue for depth in store.health.depths()}
    return sorted(ALWAYS_THERE | store.presence.presence().queues | published)


@cache
def _store() -> Store:
    settings = load_settings()
    return open_store(redis_url_of(settings), settings, timeout_s=ONLOOKER_TIMEOUT_S)


def _read_queues() -> list[str]:
    """Return all queues of the fleet; none if Redis cannot be read."""
    try:
        return queues_of_the_fleet(_store())
    except HandoffError as error:
        log.warning("cannot read the queues", why=str(error))
        return []


def _parts(handler: Any) -> tuple[Any, ...]:
    return handler.regex.pattern, handler.handler_class, handler.kwargs, handler.name


class _AllQueues:
    """Mixin for a page of Flower that lists queues."""

    _queues: list[str]

    @authenticated
    async def get(self) -> None:
        self._queues = await IOLoop.current().run_in_executor(None, _read_queues)
        await super().get()  # type: ignore[misc]

    def get_active_queue_names(self) -> list[str]:
        """Return the names that `get` has read, or the names that Flower knows if Redis could
        not be read.
        """
        return self._queues or super().get_active_queue_names()  # type: ignore[misc]


class _BrokerView(_AllQueues, BrokerView):  # type: ignore[misc]
    """The Broker page."""


class _GetQueueLengths(_AllQueues, GetQueueLengths):  # type: ignore[misc]
    """`/api/queues/length`."""
