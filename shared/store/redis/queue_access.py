"""The queues that the Redis user of this process may not use.

The user of an installation may use the queues of the specialists that the installation knows. A
worker that was taken over may announce any other name, and a user may name one in a workflow. Such
a queue is left out, so that it stops no other queue.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import redis

from handoff_queue.shared.store import keys

GOOD_FOR_S = 60.0
"""Seconds for which a queue counts as usable after a check. The rules of a user rarely change."""
MAX_KNOWN = 10_000
"""Most usable queues that a process remembers."""
MAX_NAMED = 100
"""Most queues that a process names. A worker may announce any number of names."""


def is_refusal(answer: Any) -> bool:
    """Return whether an answer of Redis is the refusal of a command that the user may not run."""
    return isinstance(answer, redis.exceptions.NoPermissionError)


def read_answers_or_refusals(pipe: Any) -> list[Any]:
    """Return the answers of a pipeline. The answer to a command that the user may not run is a
    `NoPermissionError`.

    Raises:
        redis.RedisError: another error.
    """
    answers: list[Any] = pipe.execute(raise_on_error=False)
    for answer in answers:
        if isinstance(answer, Exception) and not is_refusal(answer):
            raise answer
    return answers


class QueueAccess:
    """Checks which queues the Redis user of this process may use."""

    def __init__(
        self, client: Any, translate_errors: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """Check with this client of redis-py.

        Args:
            translate_errors: see `Connection.translate_errors`.
        """
        self._client = client
        self._translate_errors = translate_errors
        self._usable_until: dict[str, float] = {}
        self._logged: set[str] = set()
        self._refused: set[str] = set()

    @property
    def refused(self) -> tuple[str, ...]:
        """The queues that Redis refused at their last use, sorted."""
        return tuple(sorted(self._refused))

    def find_refused(self, queues: Iterable[str]) -> frozenset[str]:
        """Return the queues that the user may not use, in at most one round trip.

        Raises:
            StoreUnavailable: Redis is unreachable.
        """
        now = time.monotonic()
        unknown: list[str] = []
        for queue in dict.fromkeys(queues):
            if self._usable_until.get(queue, 0.0) <= now:
                unknown.append(queue)
        if not unknown:
            return frozenset()
        with self._translate_errors():
            pipe = self._client.pipeline(transaction=False)
            for queue in unknown:
                pipe.zcard(keys.WAITING + queue)
            answers = read_answers_or_refusals(pipe)
        refused: list[str] = []
        for queue, answer in zip(unknown, answers, strict=True):
            if self.is_refused(queue, [answer]):
                refused.append(queue)
        return frozenset(refused)

    def is_refused(self, queue: str, answers: Iterable[Any]) -> bool:
        """Return whether one of these answers about a queue is a refusal. The first refusal is
        logged.
        """
        if not any(map(is_refusal, answers)):
            if len(self._usable_until) >= MAX_KNOWN:
                self._usable_until.clear()
            self._usable_until[queue] = time.monotonic() + GOOD_FOR_S
            self._refused.discard(queue)
            return False
        self._usable_until.pop(queue, None)
        if len(self._refused) < MAX_NAMED:
            self._refused.add(queue)
        if queue not in self._logged and len(self._logged) < MAX_NAMED:
            self._logged.add(queue)
            # imported here, because few processes log this
            from handoff_queue.shared.observability.logs import get_log

            get_log(__name__).warning(
                "this process leaves out a queue, because its Redis user may not use the queue",
                queue=queue,
            )
        return True
