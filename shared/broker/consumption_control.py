"""Control of the queues that this process's Celery worker consumes.

The worker leaves out the roles queue while no role slot is free (docs/decisions/0007), and the
queues of paused roles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from handoff_queue.shared.observability.logs import log_of

log = log_of(__name__)

LOOK_AGAIN_S = 0.1
"""Longest blocking read, in seconds, of a worker that leaves out a queue. A blocking read
cannot be extended to another queue. With kombu's one second, a free slot would be idle for up
to a second.
"""


class ConsumptionControl:
    """Pauses and resumes the consumption of some queues of one worker."""

    def __init__(self) -> None:
        self._consumer: Any = None
        self._is_consumed: dict[str, bool] = {}
        """Whether the worker consumes each controlled queue."""
        self._resumes_quickly = False
        self._ask: Callable[[str], bool] = bool

    def attach(
        self,
        consumer: Any,
        queues: Iterable[str],
        may_take: Callable[[str], bool],
        *,
        resumes_quickly: bool = False,
    ) -> None:
        """Start the control.

        Args:
            consumer: Celery's consumer of a started worker.
            queues: queues to control. A queue that the worker does not consume is ignored.
            may_take: whether the worker may consume a queue now.
            resumes_quickly: True to resume a queue within `LOOK_AGAIN_S`. Otherwise it takes up to a
                second.
        """
        self._ask, self._resumes_quickly = may_take, resumes_quickly
        self._is_consumed = {}
        for queue in queues:
            if queue in consumer.app.amqp.queues.consume_from:
                self._is_consumed[queue] = True
        self._consumer = consumer
        self.changed()

    def changed(self) -> None:
        """Have the worker's own thread ask `may_take` again for each queue. Any thread may
        call this.
        """
        if self._consumer is not None:
            self._consumer.call_soon(self._settle)

    def _settle(self) -> None:
        for queue, is_consumed in self._is_consumed.items():
            if self._ask(queue) == is_consumed:
                continue
            self._is_consumed[queue] = not is_consumed
            try:
                if is_consumed:
                    self._consumer.cancel_task_queue(queue)
                else:
                    self._consumer.add_task_queue(queue)
                if self._resumes_quickly:
                    self._set_read_timeout()
            except Exception:  # the connection is lost; the next connection uses the noted queues
                log.exception(
                    "cannot change the consumption of a queue before the next connection",
                    queue=queue,
                )

    def _set_read_timeout(self) -> None:
        channel = self._consumer.task_consumer.channel
        if all(self._is_consumed.values()):
            channel.brpop_timeout = channel.connection.brpop_timeout
        else:
            channel.brpop_timeout = LOOK_AGAIN_S
