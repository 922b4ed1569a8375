"""Celery's result backend for chords: the fan-in of the parts, and the chord's body.

Celery counts the parts of a chord with a script and up to five commands for each part. The
journal counts them, too, and a difference between both would need a repair by the sweeper. So
only the store counts: `finish` tells the worker that ends the last part, and that worker sends
the chord's body.
"""

from __future__ import annotations

from typing import Any

from celery.backends.redis import RedisBackend, SentinelBackend

from handoff_queue.shared.broker.message_publisher import parse_message, publish
from handoff_queue.shared.observability.logs import get_log
from handoff_queue.shared.store.redis.client_factory import refuse_maintenance_notifications
from handoff_queue.shared.store.redis.tls import share_contexts

log = get_log(__name__)


class _PartsLeft(int):
    """A number of open parts that this process has set. A header of a message is an attribute of
    the request, too, and its value never has this type.
    """


def tell_parts_left(task: Any, parts_left: int) -> None:
    """Store the number of open parts of the task's chord, for the result backend to read when
    the task ends.
    """
    task.request.parts_left = _PartsLeft(parts_left)


class StoreBackend(RedisBackend):  # type: ignore[misc]
    """Result backend for redis:// and rediss://."""

    def _get_pool(self, **params: Any) -> Any:
        pool = super()._get_pool(**params)
        share_contexts(pool)
        refuse_maintenance_notifications(pool)
        return pool

    def on_chord_part_return(self, request: Any, *_of_its_result: Any, **_rest: Any) -> None:
        """Send the body of the chord after its last part. If this fails, the sweeper wakes the
        job, because the store knows that all parts are done.
        """
        left = getattr(request, "parts_left", None)
        if not isinstance(left, _PartsLeft) or left != 0:
            return
        try:
            publish(self.app, parse_message(request.chord))
        except Exception:  # an invalid chord, or an error of the broker's client
            log.exception("cannot send the body of a chord", group=request.group)


class SentinelStoreBackend(StoreBackend, SentinelBackend):  # type: ignore[misc]
    """Result backend for sentinel://."""
