"""Jobs of the bare canvas, as Celery's users send them."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from typing import Any

from celery.exceptions import TimeoutError as CeleryTimeoutError

from benchmarks.driver import PATIENCE_S

HEARD_WITHIN_S = 15
"""Seconds without an answer after which the result backend is read. They are longer than any
batch of jobs takes.
"""


class Canvas:
    """Jobs as Celery users write them, their ends read from the result backend."""

    def __init__(self, url: str) -> None:
        os.environ["HANDOFF_REDIS_URL"] = url
        from benchmarks.canvas_tasks import build_job

        self._job_of = build_job
        self._sent_jobs: list[tuple[Any, float]] = []

    def warm_up(self) -> None:
        self.run(1)

    def run(self, count: int) -> None:
        self._sent_jobs = []
        for n in range(count):
            sent_at = time.time()
            self._sent_jobs.append((self._job_of(f"job{n}").apply_async(), sent_at))
        for result, _ in self._sent_jobs:
            _wait_for(result)

    def list_durations(self) -> list[float]:
        items: list[float] = []
        for result, sent_at in self._sent_jobs:
            items.append(_convert_time(result.date_done) - sent_at)
        return items

    def close(self) -> None:
        """Do nothing: Celery closes its own connections."""


def _wait_for(result: Any) -> None:
    """Wait for a result, and read the store after some silence. Celery's subscription misses
    about one result in some ten thousand, and its client would wait forever.
    """
    for _ in range(PATIENCE_S // HEARD_WITHIN_S):
        try:
            result.get(timeout=HEARD_WITHIN_S)
            return
        except CeleryTimeoutError:
            if result.ready():
                return
    raise TimeoutError(f"no result of {result.id} in {PATIENCE_S} s")


def _convert_time(celery_time: datetime | str) -> float:
    """Return Unix seconds of Celery's time, which may be a datetime or a text."""
    if isinstance(celery_time, str):
        moment = datetime.fromisoformat(celery_time)
    else:
        moment = celery_time
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
