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
"""Seconds of one blocking read of a worker that leaves out a queue. A blocking read cannot be
extended to another queue. With kombu's own second, a free slot would be idle for up to a second.
"""


class ConsumptionControl:
    """Pauses and resumes the consumption of some queues of one worker."""

    def __init__(self) -> None:
        self._consumer: Any = None
        self._may_take: dict[str, bool] = {}
        self._is_in_a_hurry = False
        self._ask: Callable[[str], bool] = bool

    def attach(
        self,
        consumer: Any,
        queues: Iterable[str],
        may_take: Callable[[str], bool],
        *,
        in_a_hurry: bool = False,
    ) -> None:
        """Start the control.

        Args:
            consumer: Celery's consumer of a started worker. Queues that it does not serve are left
                as they are.
            in_a_hurry: True if a queue that is allowed again is read within `LOOK_AGAIN_S`, and not
                within a second.
        """
        self._ask, self._is_in_a_hurry = may_take, in_a_hurry
        self._may_take = {
            queue: True for queue in queues if queue in consumer.app.amqp.queues.consume_from
        }
        self._consumer = consumer
        self.changed()

    def changed(self) -> None:
        """Note that `may_take` may have changed. Any thread may call this; the worker's own thread
        checks the new state.
        """
        if self._consumer is not None:
            self._consumer.call_soon(self._settle)

    def _settle(self) -> None:
        for queue, is_taken in self._may_take.items():
            if self._ask(queue) == is_taken:
                continue
            self._may_take[queue] = not is_taken
            try:
                if is_taken:
                    self._consumer.cancel_task_queue(queue)
                else:
                    self._consumer.add_task_queue(queue)
                if self._is_in_a_hurry:
                    self._hurry()
            except Exception:  # between two connections: which queues to take from has been noted, and holds for the next one
                log.exception("a queue is left until the next connection", queue=queue)

    def _hurry(self) -> None:
        channel = self._consumer.task_consumer.channel
        if all(self._may_take.values()):
            channel.brpop_timeout = channel.connection.brpop_timeout
        else:
            channel.brpop_timeout = LOOK_AGAIN_S
