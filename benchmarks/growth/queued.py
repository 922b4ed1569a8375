"""Thousands of queued jobs without a supervisor: the time to submit a job, to list jobs and to
sweep.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

from benchmarks.processor_time import read_cpu_seconds
from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.names import SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.fleet_statistics import read_stats
from handoff_queue.supervisor.client.handoff_publishing import Dispatcher
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.engine.sweeper import Sweeper

ROUNDS = 10
SETTINGS = Settings(offline=True, mode=Mode.SINGLE)


@dataclass(frozen=True, slots=True)
class Submitted:
    """Processor time of one submission in ms, in the client and in Redis together. The values are
    the mean of the first tenth of the jobs, and of the last tenth.
    """

    first_ms: float
    last_ms: float


def submit_jobs(url: str, redis_pid: int, jobs: int) -> Submitted:
    """Submit this number of jobs, without a supervisor."""
    door, tenth, spent_s = client.connect(url, SETTINGS), max(1, jobs // 10), [0.0]
    for n in range(1, jobs + 1):
        door.submit(Request(f"Say what number {n} says."))
        if n % tenth == 0:
            spent_s.append(time.process_time() + read_cpu_seconds(redis_pid))
        elif n == 1:
            spent_s[0] = time.process_time() + read_cpu_seconds(
                redis_pid
            )  # without the first connection
    return Submitted(
        1000 * (spent_s[1] - spent_s[0]) / tenth, 1000 * (spent_s[-1] - spent_s[-2]) / tenth
    )


def measure_operations(url: str) -> Iterator[tuple[str, float]]:
    """Yield the median time of each operation in this process, in ms."""
    door = client.connect(url, SETTINGS)
    newest = door.newest(1)[0].job_id
    app = make_app("growth", url, SETTINGS, (SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE))
    sweeper = Sweeper(
        door.store, Dispatcher(app), "growth", interval_s=1.0, keep_s=SETTINGS.retention_s
    )
    operations: dict[str, Callable[[], object]] = {
        "list": door.newest,
        "show": lambda: door.result(newest),
        "stats": lambda: read_stats(door.store, door.store.fleet_load.now()),
        "sweep": sweeper.sweep,
        "hourly cleanup": lambda: door.store.jobs.forget_older_than(
            door.store.connection.now() - SETTINGS.retention_s
        ),
    }
    for name, operation in operations.items():
        operation()
        yield name, median(measure_time(operation) for _ in range(ROUNDS))


def measure_time(operation: Callable[[], object]) -> float:
    began = time.perf_counter()
    operation()
    return 1000 * (time.perf_counter() - began)
