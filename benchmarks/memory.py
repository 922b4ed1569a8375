"""Memory of a finished job in Redis until retention removes it: `python -m benchmarks.memory`."""

from __future__ import annotations

import argparse
import re
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import redis

from benchmarks.arguments import parse_positive
from benchmarks.fleets import SLOTS, SUPERVISOR, WORKER, build_environment, fleet, private_redis
from benchmarks.handoff_jobs import HandoffJobs
from handoff_queue.shared.types.plan import Synthesis

KINDS = (
    (r"handoff:\{.+\}", "jobs"),
    (r"handoff:\{.+\}:(log|newest)", "journal"),
    (r"handoff:\{.+\}:blob", "payloads"),
    (r"handoff:\{.+\}:h:.+", "handoffs"),
    (r"handoff:\{.+\}:t:.+", "turns"),
)
SHARED_BY_JOBS = "what all jobs share"


def measure_bytes_by_kind(client: Any) -> Counter[str]:
    """Return the MEMORY USAGE of every key, by kind."""
    sizes: Counter[str] = Counter()
    for name in client.scan_iter(count=1_000):
        kind = next(
            (kind for pattern, kind in KINDS if re.fullmatch(pattern, name.decode())),
            SHARED_BY_JOBS,
        )
        sizes[kind] += client.memory_usage(name, samples=0) or 0
    return sizes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=parse_positive, default=200)
    jobs = parser.parse_args().jobs
    with tempfile.TemporaryDirectory() as name, private_redis(Path(name) / "redis") as (url, _):
        environment = build_environment(url, 0.0, Synthesis.MERGE)
        with (
            fleet(Path(name) / "handoff", environment, [SUPERVISOR, WORKER], slots=SLOTS),
            redis.Redis.from_url(url) as client,
        ):
            project = HandoffJobs(url)
            project.warm_up()
            project.run(5)
            before = measure_bytes_by_kind(client)
            used_before = int(client.info("memory")["used_memory"])
            project.run(jobs)
            after = measure_bytes_by_kind(client)
            used_bytes = int(client.info("memory")["used_memory"]) - used_before
    print(
        f"{jobs} jobs of a plan with 3 steps, 5 handoffs and answers of a line each\n\n| | KB a job"
        " |\n|---|---|"
    )
    for kind in (*(kind for _, kind in KINDS), SHARED_BY_JOBS):
        print(f"| {kind} | {(after[kind] - before[kind]) / jobs / 1024:.1f} |")
    print(f"| **Redis's used_memory** | **{used_bytes / jobs / 1024:.1f}** |")


if __name__ == "__main__":
    main()
