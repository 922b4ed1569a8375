"""`python -m benchmarks.critical_path`: random DAGs of steps with uneven calls, one after the
other, each held against its critical path.

The planner's, the assessor's and the synthesizer's calls are part of the path; every process
has more slots than a DAG has steps.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.arguments import parse_positive, parse_seconds
from benchmarks.fleets import SLOTS, ProcessKind, build_environment, fleet, private_redis
from benchmarks.handoff_jobs import HandoffJobs
from benchmarks.uneven_model import CALL_S, Dag, make_dag
from handoff_queue.shared.local.fork_server import ForkServer
from handoff_queue.shared.types.plan import Synthesis

PARTS = (
    ProcessKind(
        "supervisor", "benchmarks.uneven_supervisor", "supervisor,submissions,roles", SLOTS
    ),
    ProcessKind("worker", "benchmarks.uneven_worker", "researcher", SLOTS),
)


@dataclass(frozen=True, slots=True)
class Walked:
    """A DAG, and the seconds from its submission to its answer."""

    dag: Dag
    took_s: float

    @property
    def ratio(self) -> float:
        return self.took_s / self.dag.critical_path_s


def run_jobs(
    folder: Path,
    numbers: Sequence[int],
    shortest_s: float,
    longest_s: float,
    *,
    fork_server: ForkServer | None = None,
) -> Generator[Walked]:
    """Run the jobs on separate processes, one after the other.

    Args:
        fork_server: see `fleets.fleet`.
    """
    with private_redis(folder / "redis") as (url, _):
        environment = {
            **build_environment(url, 0.0, Synthesis.RECONCILE),
            CALL_S: f"{shortest_s} {longest_s}",
        }
        with (
            fleet(folder / "fleet", environment, PARTS, fork_server=fork_server),
            closing(HandoffJobs(url)) as project,
        ):
            project.wait_for_workers()
            project.run_one(make_dag(0, shortest_s, longest_s).request)
            for number in numbers:
                dag = make_dag(number, shortest_s, longest_s)
                began = time.perf_counter()
                project.run_one(dag.request)
                yield Walked(dag, time.perf_counter() - began)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.critical_path", description=__doc__)
    parser.add_argument("--dags", type=parse_positive, default=10)
    parser.add_argument("--seed", type=int, default=1, help="the first DAG's number")
    parser.add_argument(
        "--calls",
        type=parse_seconds,
        nargs=2,
        default=[1.0, 3.0],
        help="the shortest and the longest, in seconds",
    )
    options = parser.parse_args(arguments)
    calls = f"{options.calls[0]:g} to {options.calls[1]:g} s a call"
    print(
        f"{os.cpu_count()} cores, Python {platform.python_version()}, {calls}, {SLOTS} slots a"
        " process\n"
    )
    print("| DAG | steps | sinks | critical path s | took s | ratio |\n|---|---|---|---|---|---|")
    walks = []
    with tempfile.TemporaryDirectory() as folder:
        for walk in run_jobs(
            Path(folder), range(options.seed, options.seed + options.dags), *options.calls
        ):
            dag = walk.dag
            cells = (
                dag.number,
                len(dag.depends_on),
                len(dag.sinks),
                f"{dag.critical_path_s:.2f}",
                f"{walk.took_s:.2f}",
                f"{walk.ratio:.3f}",
            )
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
            walks.append(walk.ratio)
    print(
        f"\nOver the critical path: median **{median(walks):.3f}**, worst **{max(walks):.3f}**"
        " (wanted: at most 1.03)"
    )


if __name__ == "__main__":
    main()
