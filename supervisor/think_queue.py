"""Whether this process takes handoffs off the think queue: only while it has a slot to think (docs/decisions/0007)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog

from shared.wire.names import THINK_QUEUE

log = structlog.get_logger()


class ThinkQueue:
    """Pauses and resumes the consumption of one queue of this process's Celery worker."""

    def __init__(self) -> None:
        self._consumer: Any = None
        self._is_full: Callable[[], bool] = lambda: False

    def attach(self, consumer: Any, is_full: Callable[[], bool]) -> None:
        """`consumer`: Celery's, of a worker that has started. One that does not serve the queue is left as it is."""
        self._is_full = is_full
        if THINK_QUEUE in consumer.app.amqp.queues.consume_from:
            self._consumer = consumer
            self.changed()

    def changed(self) -> None:
        """From any thread: slots were taken or given back. The worker's own thread then looks how it is by then."""
        if self._consumer is not None:
            self._consumer.call_soon(self._settle)

    def _settle(self) -> None:
        try:
            if self._is_full():
                self._consumer.cancel_task_queue(THINK_QUEUE)
            else:
                self._consumer.add_task_queue(THINK_QUEUE)
        except Exception:  # between two connections: which queues to take from has been noted, and holds for the next one
            log.exception("the think queue is left until the next connection")
