"""Slots of this worker process: the slots that its tasks hold, and the slots that are lost
until the process restarts.
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
"""Seconds from the deadline of a handoff until the slot of its running task counts as lost."""


class Slots:
    """The tasks that run in this process. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, float] = {}
        """The time at which each task is overdue, by `time.monotonic`, by task id."""
        self._suspects: frozenset[str] = frozenset()

    @contextmanager
    def count_as_running(self, task_id: str) -> Iterator[None]:
        """Count the task as running until the block ends."""
        with self._lock:
            self._running[task_id] = inf
        try:
            yield
        finally:
            with self._lock:
                self._running.pop(task_id, None)

    def set_time_left(self, task_id: str, left_s: float) -> None:
        """Note the seconds until the deadline of the task's handoff."""
        with self._lock:
            if task_id in self._running:
                self._running[task_id] = time.monotonic() + left_s + OVERDUE_S

    def count_lost_slots(self, pool: Any) -> int:
        """Return the number of lost slots: Celery counts their tasks as running, but the tasks
        have ended or are overdue.

        A task that has just begun or ended looks lost for a moment, so a task counts only if
        the previous call saw it, too. Return 0 for Celery's prefork pool, whose tasks run in
        other processes that Celery watches itself.

        Args:
            pool: Celery's task pool of this worker.
        """
        if pool.uses_semaphore:
            return 0
        active: set[str] = set()
        for request in tuple(worker_state.active_requests):
            active.add(str(request.id))
        with self._lock:
            now = time.monotonic()
            suspects: set[str] = set()
            for task_id in active:
                if self._running.get(task_id, -inf) < now:
                    suspects.add(task_id)
            lost_tasks = self._suspects & suspects
            self._suspects = frozenset(suspects)
        return len(lost_tasks)


SLOTS = Slots()
"""Slots of this process."""
