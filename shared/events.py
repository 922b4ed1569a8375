"""Task events, made while somebody listens: three for each message, which cost a worker as much as to read it."""

from __future__ import annotations

from typing import Any

from celery.events import EventDispatcher

_BEAT = "worker-heartbeat"
_OF_TASKS = "task-"


class HeardDispatcher(EventDispatcher):  # type: ignore[misc]
    """Celery's own, which says nothing of tasks while its last heartbeat was heard by nobody.

    A heartbeat is sent every two seconds, and at once when Flower or `celery events` begin to listen, who ask for one. Without heartbeats,
    everything is sent. A listener that comes in between misses what was sent in these seconds, as it does what was sent before it came.
    """

    _is_heard = True

    def send(self, type: str, *args: Any, **fields: Any) -> Any:  # noqa: A002 - Celery's own signature
        if not self._is_heard and type.startswith(_OF_TASKS):
            return None
        sent = super().send(type, *args, **fields)
        if type == _BEAT and self.enabled:
            self._is_heard = getattr(self.producer.channel, "listeners", 1) > 0
        return sent
