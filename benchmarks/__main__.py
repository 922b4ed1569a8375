"""`make bench`: this project beside a bare Celery canvas of the same shape, on the same pools, in one run, in turn."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.instant_model import DELAY
from shared.config import Settings
from shared.local.processes import ChildSpec, Processes
from shared.local.redis_server import PrivateRedis
from shared.wire.events import JobStatus
from shared.wire.mode import Mode
from supervisor import client

ROOT = Path(__file__).parents[1]
SLOTS = 16
CRITICAL_PATH_CALLS = 3
"""Of the plan with three parallel steps that are merged by code: planner, a step, the assessor."""


@dataclass(frozen=True, slots=True)
class Row:
    """One way of running the jobs."""

    name: str
    jobs_per_s: list[float]
    idle_ms: list[float]


@contextmanager
def fleet(folder: Path, url: str, names: dict[str, tuple[str, str]], delay_s: float) -> Iterator[None]:
    """Celery processes: name -> (app, queues)."""
    environment = {
        "HANDOFF_REDIS_URL": url,
        "HANDOFF_OFFLINE": "true",
        "HANDOFF_LOG_LEVEL": "WARNING",
        "PYTHONPATH": str(ROOT),
        DELAY: str(delay_s),
    }
    with Processes(folder) as processes:
        for name, (app, queues) in names.items():
            command = [sys.executable, "-m", "celery", "-A", app, "worker", "-n", f"{name}@bench", "-Q", queues, "-c", str(SLOTS)]
            processes.start(ChildSpec(name, command, environment))
        processes.wait_until_ready()
        yield


OURS = {
    "supervisor": ("benchmarks.ours_supervisor", "supervisor,submissions,think"),
    "worker": ("benchmarks.ours_worker", "researcher"),
}
CANVAS = {
    "canvas_supervisor": ("benchmarks.canvas", "canvas_supervisor"),
    "canvas_worker": ("benchmarks.canvas", "canvas_worker"),
}


class Ours:
    """Jobs through the client, their ends read from their journals."""

    def __init__(self, url: str) -> None:
        self._jobs = client.connect(url, Settings(offline=True, mode=Mode.TEAM))

    def warm_up(self) -> None:
        until = time.monotonic() + 20
        while not self._jobs.ledger.roles.served() and time.monotonic() < until:
            time.sleep(0.05)

    def run(self, count: int) -> None:
        ids = [self._jobs.submit(client.Request(f"Three parts of number {n}")) for n in range(count)]
        for job_id in ids:
            result = self._jobs.wait(job_id, 300)
            assert result is JobStatus.OK, f"{job_id} ended {result}"


class Canvas:
    """Jobs as Celery users write them, their ends read from the result backend."""

    def __init__(self, url: str) -> None:
        os.environ["HANDOFF_REDIS_URL"] = url
        from benchmarks.canvas import job_of

        self._job_of = job_of

    def warm_up(self) -> None:
        self.run(1)

    def run(self, count: int) -> None:
        sent = [self._job_of(f"job{n}").apply_async() for n in range(count)]
        for result in sent:
            result.get(timeout=300)


def timed(run: Callable[[int], None], count: int) -> float:
    started = time.perf_counter()
    run(count)
    return time.perf_counter() - started


def measure(repeats: int, jobs: int) -> list[Row]:
    """Zero-latency model: throughput of a batch, and the time of a single job on an idle system; the two take turns."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Processes(folder / "redis") as processes:
            url = PrivateRedis(processes, folder / "redis", append_only=False).start()
            processes.wait_until_ready()
            rows = {"this project": Row("this project", [], []), "bare canvas": Row("bare canvas", [], [])}
            with fleet(folder / "ours", url, OURS, 0.0), fleet(folder / "canvas", url, CANVAS, 0.0):
                runners: dict[str, Ours | Canvas] = {"this project": Ours(url), "bare canvas": Canvas(url)}
                for runner in runners.values():
                    runner.warm_up()
                    runner.run(5)
                for _ in range(repeats):
                    for row_name, runner in runners.items():
                        rows[row_name].jobs_per_s.append(jobs / timed(runner.run, jobs))
                        rows[row_name].idle_ms.extend(timed(runner.run, 1) * 1000 for _ in range(5))
    return list(rows.values())


def critical_path(calls_s: float, jobs: int) -> float:
    """Wall time over critical path, one job at a time, with a model that takes `calls_s` a call."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Processes(folder / "redis") as processes:
            url = PrivateRedis(processes, folder / "redis", append_only=False).start()
            processes.wait_until_ready()
            with fleet(folder / "ours", url, OURS, calls_s):
                ours = Ours(url)
                ours.warm_up()
                times = [timed(ours.run, 1) for _ in range(jobs)]
    return statistics.median(times) / (CRITICAL_PATH_CALLS * calls_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=200)
    options = parser.parse_args()
    ours, canvas = measure(options.repeats, options.jobs)
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, {options.jobs} jobs x {options.repeats}, {SLOTS} slots a process\n")
    print("| | jobs/s (median) | submit to answer, idle (median) |\n|---|---|---|")
    for row in (canvas, ours):
        print(f"| {row.name} | {statistics.median(row.jobs_per_s):.1f} | {statistics.median(row.idle_ms):.1f} ms |")
    ratio = statistics.median(a / b for a, b in zip(ours.jobs_per_s, canvas.jobs_per_s, strict=True))
    idle = statistics.median(ours.idle_ms) / statistics.median(canvas.idle_ms)
    print(f"| **ratio** | **{ratio:.2f}x** (target at least 0.8x) | **{idle:.2f}x** (target at most 1.3x) |")
    path = critical_path(1.0, 5)
    print(f"\nWall time over critical path at 1 s a model call: **{path:.3f}** (target at most 1.05)")


if __name__ == "__main__":
    main()
