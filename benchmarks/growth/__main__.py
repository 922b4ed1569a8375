"""Growth of cost with the steps of a job, the jobs in the queue and the jobs in the store:
`python -m benchmarks.growth`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from benchmarks.arguments import parse_not_negative, parse_positive
from benchmarks.growth.queued import ROUNDS, measure_operations, submit_jobs
from benchmarks.growth.steps import EXTRA_STEPS, RowFleet, Steps, steps_fleet
from handoff_queue.shared.local.child_process_restarts import Processes
from handoff_queue.shared.local.redis_server import PrivateRedis
from handoff_queue.shared.store import keys
from handoff_queue.shared.types.ids import JobId, create_job_id

COMMANDS = ("--version", "list", "show", "stats")


@dataclass(frozen=True, slots=True)
class GrowthStore:
    """A Redis of our own, and the process that it is."""

    folder: Path
    url: str
    redis: Any
    pid: int


@contextmanager
def store() -> Iterator[GrowthStore]:
    with tempfile.TemporaryDirectory() as name, Processes(Path(name) / "redis") as processes:
        url = PrivateRedis(processes, Path(name) / "redis", append_only=False).start()
        with redis.Redis.from_url(url) as client:
            yield GrowthStore(Path(name), url, client, processes.get_pids()["redis"])


def measure_rows(sizes: Sequence[int], each: int, shape: str) -> tuple[list[float], list[Steps]]:
    """Measure small jobs on the idle system; then jobs of each size, with at least `each`
    steps in total.
    """
    with store() as at, steps_fleet(at.folder, at.url, at.redis, {"redis": at.pid}, shape) as fleet:
        fleet.run_steps(min(20, *sizes), 1)
        idle_ms: list[float] = []
        for _ in range(ROUNDS):
            idle_ms.append(fleet.run_small_job())
        return idle_ms, [fleet.run_steps(rows, max(1, each // rows)) for rows in sizes]


def print_steps(idle_ms: Sequence[float], measurements: Sequence[Steps]) -> None:
    first = measurements[0]
    processes = list(first.cpu_ms)
    columns = (
        "CPU ms a step",
        "x",
        "ms a step",
        "x",
        "KB a step",
        "`show`, ms",
        "`--handoff`",
        "`--full`",
        "other jobs, median",
        "worst",
    )
    print(f"| rows of a job | {' | '.join((*processes, *columns))} |")
    print(f"|{'---|' * (len(processes) + len(columns) + 1)}")
    print(
        f"| none |{' |' * (len(processes) + len(columns) - 2)} {statistics.median(idle_ms):.0f} ms"
        f" | {max(idle_ms):.0f} ms |"
    )
    for steps in measurements:
        cpu = " | ".join(f"{steps.cpu_ms[name]:.2f}" for name in processes)
        growth = (
            f"{steps.total_ms:.2f} | {steps.total_ms / first.total_ms:.2f} | {steps.wall_ms:.2f} |"
            f" {steps.wall_ms / first.wall_ms:.2f}"
        )
        shows = f"{steps.show_ms:.0f} | {steps.handoff_ms:.0f} | {steps.all_ms:.0f}"
        others = f"{statistics.median(steps.others_ms):.0f} ms | {max(steps.others_ms):.0f} ms"
        print(f"| {steps.rows:,} | {cpu} | {growth} | {steps.memory_kb:.2f} | {shows} | {others} |")
    kinds: list[str] = []
    for kind, kb in measurements[-1].by_kind_kb.items():
        if kb >= 0.005:
            kinds.append(f"{kind} {kb:.2f}")
    kind_list = ", ".join(kinds)
    print(f"\nKeys of a finished step, with {measurements[-1].rows:,} rows (KB): {kind_list}\n")


def print_queued(jobs: int) -> None:
    with store() as at:
        took = submit_jobs(at.url, at.pid, jobs)
        print(f"| {jobs:,} jobs queued | ms |\n|---|---|")
        print(f"| submit (processor), in the first tenth | {took.first_ms:.1f} |")
        print(f"| submit (processor), in the last tenth | {took.last_ms:.1f} |")
        print_operation_times(at)


def print_finished(jobs: int) -> None:
    with store() as at:
        with steps_fleet(at.folder, at.url, at.redis, {"redis": at.pid}, "rows") as fleet:
            real = run_finished_job(fleet)
        fill(at.redis, real, jobs)
        print(f"| {jobs:,} finished jobs in store | ms |\n|---|---|")
        print_operation_times(at)
        for command in COMMANDS:
            if command == "show":
                arguments = [command, real]
            else:
                arguments = [command]
            print(
                f"| `handoff {command}`, the whole command (processor) |"
                f" {statistics.median(run_command(at, arguments) for _ in range(5)):.0f} |"
            )
        print(
            f"\nRedis: {int(at.redis.info('memory')['used_memory']) / jobs / 1024:.1f} KB a job\n"
        )


def print_operation_times(at: GrowthStore) -> None:
    for name, ms in measure_operations(at.url):
        print(f"| {name} | {ms:.1f} |")
    print()


def run_command(at: GrowthStore, arguments: Sequence[str]) -> float:
    """Return the processor time of the command in ms. On a busy machine its wall time says
    nothing.
    """
    environment, before = (
        os.environ | {"HANDOFF_REDIS_URL": at.url, "HANDOFF_OFFLINE": "true"},
        os.times(),
    )
    subprocess.run(
        [sys.executable, "-m", "handoff_queue.supervisor.cli.main", *arguments],
        env=environment,
        check=True,
        capture_output=True,
    )
    after = os.times()
    return 1000 * (
        after.children_user + after.children_system - before.children_user - before.children_system
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument(
        "--rows",
        type=parse_positive,
        nargs="*",
        default=[100, 1_000, 10_000],
        help="numbers of rows of a job; the table has a row for each number",
    )
    parser.add_argument(
        "--steps",
        type=parse_positive,
        default=1_000,
        help="steps that are measured for each size, in one job or in several",
    )
    parser.add_argument(
        "--shape",
        choices=list(EXTRA_STEPS),
        default="rows",
        help="the steps after the step for each row",
    )
    help_of_zero = "jobs; 0: leave that out"
    parser.add_argument("--queued", type=parse_not_negative, default=10_000, help=help_of_zero)
    parser.add_argument("--finished", type=parse_not_negative, default=100_000, help=help_of_zero)
    options = parser.parse_args(arguments)
    if not (options.rows or options.queued or options.finished):
        parser.error("--rows, --queued and --finished leave nothing to measure: leave one out")
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}\n")
    if options.rows:
        print_steps(*measure_rows(options.rows, options.steps, options.shape))
    if options.queued:
        print_queued(options.queued)
    if options.finished:
        print_finished(options.finished)


if __name__ == "__main__":
    main()


AT_ONCE = 1_000


def fill(redis: Any, real: JobId, jobs: int) -> None:
    """Store this number of copies of the job, each one ms older than the previous one."""
    names: list[bytes] = list(redis.scan_iter(match=f"{keys.PREFIX}{{{real}}}*", count=1_000))
    dumps: list[tuple[str, int, bytes]] = []
    for key in names:
        dumps.append((key.decode(), redis.pttl(key), redis.dump(key)))
    at = redis.zscore(keys.JOBS, real)
    for first in range(0, jobs, AT_ONCE):
        pipe = redis.pipeline(transaction=False)
        for number in range(first, min(jobs, first + AT_ONCE)):
            copy = create_job_id()
            for name, ttl_ms, dump in dumps:
                pipe.restore(name.replace(real, copy), ttl_ms, dump)
            pipe.zadd(keys.JOBS, {copy: at - number - 1})
        pipe.execute()


def run_finished_job(fleet: RowFleet) -> JobId:
    """Run a job of one agent with one call."""
    fleet.run_small_job()
    return fleet.jobs.newest(1)[0].job_id
