"""Slots of this worker process: the slots that its tasks hold, and the slots that are lost until
the process restarts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import Any

from celery.worker import state as worker_state

OVERDUE_S = 60.0
"""Seconds after the deadline of its handoff until the slot of a running task counts as lost."""


class Slots:
    """Which tasks run in this process. Shared by its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, float] = {}
        """The time at which each task is overdue, by `time.monotonic`, by task id."""
        self._suspects: frozenset[str] = frozenset()

    @contextmanager
    def taken(self, task_id: str) -> Iterator[None]:
        """Count the task as running until the block ends."""
        with self._lock:
            self._running[task_id] = inf
        try:
            yield
        finally:
            with self._lock:
                self._running.pop(task_id, None)

    def ends_within(self, task_id: str, left_s: float) -> None:
        """Note the seconds until the deadline of the task's handoff."""
        with self._lock:
            if task_id in self._running:
                self._running[task_id] = time.monotonic() + left_s + OVERDUE_S

    def lost(self, pool: Any) -> int:
        """Return how many slots are lost: Celery counts a task as running that has ended, or
        that is overdue.

        A task that has just begun or ended looks the same for a moment, so a task counts only
        if the look before this one saw it, too. Tasks of Celery's prefork pool run in other
        processes, which Celery watches itself.
        """
        if pool.uses_semaphore:
            return 0
        active: set[str] = set()
        for request in tuple(worker_state.active_requests):
            active.add(str(request.id))
        with self._lock:
            now = time.monotonic()
            suspects = frozenset(
                task_id for task_id in active if self._running.get(task_id, -inf) < now
            )
            lost = suspects & self._suspects
            self._suspects = suspects
        return len(lost)


SLOTS = Slots()
"""Slots of this process."""
