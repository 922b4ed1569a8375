"""Which of its queues this process's Celery worker takes from: all but those that something
speaks against.

The think queue while there is no slot to think (docs/decisions/0007), and the queues of paused
roles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from handoff_queue.shared.observability.logs import log_of

log = log_of(__name__)

LOOK_AGAIN_S = 0.1
"""So long does a worker that leaves a queue out wait for messages of its others, until it asks
Redis anew for all that it takes from.
Who waits for some queues cannot be told of another: with kombu's own second, a slot that is
free again is idle for up to that.
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
        """`consumer`: Celery's, of a worker that has started. Queues that it does not serve
        are left as they are. `in_a_hurry`: what may be taken from again is, within
        `LOOK_AGAIN_S`; else within a second.
        """
        self._ask, self._is_in_a_hurry = may_take, in_a_hurry
        self._may_take = {
            queue: True for queue in queues if queue in consumer.app.amqp.queues.consume_from
        }
        self._consumer = consumer
        self.changed()

    def changed(self) -> None:
        """From any thread: `may_take` may answer otherwise now. The worker's own thread then
        looks how it is by then.
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
        channel.brpop_timeout = (
            channel.connection.brpop_timeout if all(self._may_take.values()) else LOOK_AGAIN_S
        )
