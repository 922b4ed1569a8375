"""Runners submit jobs, wait for their answers, and measure each job."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

PATIENCE_S = 300
FOLDER = "BENCH_FOLDER"
"""Environment: where a row may keep its files."""


class Runner(Protocol):
    """A system that runs jobs."""

    def warm_up(self) -> None:
        """Run one job, because the first job imports everything."""

    def run(self, count: int) -> None:
        """Run this number of jobs at once, to the last answer."""

    def each_s(self) -> list[float]:
        """Return the seconds from submission to answer for each job of the last `run`. It is
        called after the clock has stopped.
        """

    def close(self) -> None:
        """Stop the system."""


def _ours() -> Runner:
    from benchmarks.ours_jobs import Ours

    return Ours(os.environ["HANDOFF_REDIS_URL"])


def _canvas() -> Runner:
    from benchmarks.canvas_jobs import Canvas

    return Canvas(os.environ["HANDOFF_REDIS_URL"])


def _threads() -> Runner:
    from benchmarks.langgraph_jobs import InThreads

    return InThreads(Path(os.environ[FOLDER]))


def _event_loop() -> Runner:
    from benchmarks.langgraph_jobs import InAnEventLoop

    return InAnEventLoop(Path(os.environ[FOLDER]))


RUNNERS: dict[str, Callable[[], Runner]] = {
    "ours": _ours,
    "canvas": _canvas,
    "langgraph": _threads,
    "langgraph_async": _event_loop,
}
"""Runners by the names that `python -m benchmarks.driver` takes. Each imports only its own
modules.
"""
