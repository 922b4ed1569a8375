"""`python -m benchmarks.driver NAME`: the process that runs one row's jobs, so that its
resource usage belongs to that row. Its runners submit jobs, wait for their answers, and measure
each job.

It prints `ready`, then reads lines. `run COUNT` is answered by the seconds it took, `each` by
a JSON list of the seconds of each job.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

PATIENCE_S = 300
FOLDER = "BENCH_FOLDER"
"""Environment: where a row may keep its files."""


class SystemRunner(Protocol):
    """A system that runs jobs."""

    def warm_up(self) -> None:
        """Run one job, because the first job imports everything."""

    def run(self, count: int) -> None:
        """Run this number of jobs at once, to the last answer."""

    def list_durations(self) -> list[float]:
        """Return the seconds from submission to answer for each job of the last `run`. It is
        called after the clock has stopped.
        """

    def close(self) -> None:
        """Stop the system."""


def _make_handoff() -> SystemRunner:
    from benchmarks.handoff_jobs import HandoffJobs

    return HandoffJobs(os.environ["HANDOFF_REDIS_URL"])


def _make_canvas() -> SystemRunner:
    from benchmarks.canvas_jobs import Canvas

    return Canvas(os.environ["HANDOFF_REDIS_URL"])


def _make_threads() -> SystemRunner:
    from benchmarks.langgraph_jobs import InThreads

    return InThreads(Path(os.environ[FOLDER]))


def _make_event_loop() -> SystemRunner:
    from benchmarks.langgraph_jobs import InAnEventLoop

    return InAnEventLoop(Path(os.environ[FOLDER]))


RUNNERS: dict[str, Callable[[], SystemRunner]] = {
    "handoff": _make_handoff,
    "canvas": _make_canvas,
    "langgraph": _make_threads,
    "langgraph_async": _make_event_loop,
}
"""Runners by the names that `python -m benchmarks.driver` takes. Each imports only its own
modules.
"""


class Driver:
    """The other end: starts such a process, and speaks with it."""

    def __init__(self, name: str, environment: Mapping[str, str], log: Path) -> None:
        command = [sys.executable, "-m", "benchmarks.driver", name]
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                bufsize=1,
            )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        assert self._read_line() == "ready"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.__exit__(kind, error, trace)  # closes its input, so it ends, and waits for it

    def run(self, count: int) -> float:
        """Run this number of jobs at once. Return the seconds from the first submission to the
        last answer.
        """
        return float(self._send_line(f"run {count}"))

    def list_durations(self) -> list[float]:
        seconds: list[float] = json.loads(self._send_line("each"))
        return seconds

    def _send_line(self, line: str) -> str:
        assert self._process.stdin
        self._process.stdin.write(f"{line}\n")
        return self._read_line()

    def _read_line(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, f"a driver has ended:\n{self._log.read_text(errors='replace')[-2_000:]}"
        return line.strip()


def main() -> None:
    runner = RUNNERS[sys.argv[1]]()
    runner.warm_up()
    print("ready", flush=True)
    for line in sys.stdin:
        command, _, count = line.strip().partition(" ")
        if command == "each":
            print(json.dumps(runner.list_durations()), flush=True)
        else:
            began = time.perf_counter()
            runner.run(int(count))
            print(time.perf_counter() - began, flush=True)
    runner.close()


if __name__ == "__main__":
    main()
