"""Processor time of a job with signed messages and without: `python -m benchmarks.signed_jobs`.

Both forms have a supervisor, a worker and a Redis. They run the same jobs in turn: a plan, three
steps in parallel, and a review. Each model call goes over HTTP with the provider's SDK, and the
server answers at once. The processor time of the server is left out: it stands for the provider.
With `--instant` a function in the process stands for the model, so a call costs nothing. `--parts`
measures the share of signatures and verified usage in one system with keys.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import redis

from benchmarks.arguments import parse_positive
from benchmarks.fleets import (
    SLOTS,
    SUPERVISOR,
    WORKER,
    ProcessKind,
    build_environment,
    fleet,
    messages_server,
    private_redis,
)
from benchmarks.handoff_jobs import HandoffJobs
from benchmarks.processor_time import CLOCK_FOLDER, measure_from_now_on, sum_seconds
from benchmarks.trips import measure_cost
from handoff_queue.shared.trust.key_files import find_private_key_file, make_keys
from handoff_queue.shared.types.plan import Synthesis

IDENTITIES = {SUPERVISOR.name: "supervisor", WORKER.name: "worker"}
WARM_UP_JOBS = 20


def list_variables(part: ProcessKind, keys: Path | None) -> dict[str, str]:
    """Return the variables with the keys of a process."""
    if keys is None:
        return {}
    key = find_private_key_file(keys, IDENTITIES[part.name])
    return {"HANDOFF_KEYS": str(keys), "HANDOFF_SIGNING_KEY": str(key)}


def start(
    parts: ExitStack, folder: Path, provider: dict[str, str], keys: Path | None
) -> tuple[HandoffJobs, dict[str, int], Any]:
    """Start a fleet and run its first jobs. Return its jobs, its processes and its Redis."""
    url, server = parts.enter_context(private_redis(folder / "redis"))
    environment = build_environment(url, 0.0, Synthesis.MERGE) | provider
    pids: dict[str, int] = {"redis": server}
    for part in (SUPERVISOR, WORKER):
        variables = environment | list_variables(part, keys)
        pids |= parts.enter_context(fleet(folder / part.name, variables, [part], slots=SLOTS))
    jobs = HandoffJobs(url, keys)
    jobs.warm_up()
    jobs.run(WARM_UP_JOBS)
    return jobs, pids, redis.Redis.from_url(url)


def _start_provider(parts: ExitStack, folder: Path, *, is_instant: bool) -> dict[str, str]:
    """Start a server for the model calls. Return the variables with its address."""
    if is_instant:
        return {}
    server = messages_server(folder / "provider", "jobs", "0.0", Synthesis.MERGE.value)
    return {
        "ANTHROPIC_BASE_URL": parts.enter_context(server),
        "ANTHROPIC_API_KEY": "none",
        "HANDOFF_OFFLINE": "false",
    }


def measure_jobs(jobs: int, repeats: int, *, is_instant: bool) -> list[tuple[float, float]]:
    """Return milliseconds of processor time of a job in each turn: without keys, and with keys."""
    turns: list[tuple[float, float]] = []
    with ExitStack() as parts:
        folder = Path(parts.enter_context(tempfile.TemporaryDirectory()))
        provider = _start_provider(parts, folder, is_instant=is_instant)
        keys = folder / "keys"
        make_keys(keys)
        systems = [
            start(parts, folder / "plain", provider, None),
            start(parts, folder / "signed", provider, keys),
        ]
        for number in range(repeats):
            costs = [0.0, 0.0]
            order = (0, 1) if number % 2 else (1, 0)
            for place in order:
                runner, pids, client = systems[place]
                costs[place] = measure_cost(runner.run, jobs, pids, client).total_ms
            turns.append((costs[0], costs[1]))
    return turns


def measure_parts(jobs: int, *, is_instant: bool) -> None:
    """Print the processor time of signatures and of verified usage in a job, and their shares."""
    with ExitStack() as parts:
        folder = Path(parts.enter_context(tempfile.TemporaryDirectory()))
        clock, keys = folder / "clock", folder / "keys"
        clock.mkdir()
        make_keys(keys)
        os.environ[CLOCK_FOLDER] = str(clock)
        measure_from_now_on()
        provider = _start_provider(parts, folder, is_instant=is_instant) | {
            CLOCK_FOLDER: str(clock)
        }
        runner, pids, client = start(parts, folder / "signed", provider, keys)
        before = sum_seconds(clock)
        cost = measure_cost(runner.run, jobs, pids, client)
        after = sum_seconds(clock)
    print(f"| part | ms of {cost.total_ms:.1f} ms of a job | share |\n|---|---|---|")
    for part, seconds in after.items():
        used_ms = (seconds - before[part]) * 1000 / jobs
        print(f"| {part} | {used_ms:.3f} | {used_ms / cost.total_ms:.2%} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=parse_positive, default=80)
    parser.add_argument("--repeats", type=parse_positive, default=9)
    parser.add_argument("--instant", action="store_true", help="a function stands for the model")
    parser.add_argument("--parts", action="store_true", help="the shares in one system")
    options = parser.parse_args()
    if options.parts:
        measure_parts(options.jobs, is_instant=options.instant)
        return
    turns = measure_jobs(options.jobs, options.repeats, is_instant=options.instant)
    ratios: list[float] = []
    for plain, signed in turns:
        ratios.append(signed / plain)
    plain_ms = median(plain for plain, _ in turns)
    signed_ms = median(signed for _, signed in turns)
    print("| ms of processor time of a job, unsigned | signed | ratio |\n|---|---|---|")
    print(f"| {plain_ms:.1f} | {signed_ms:.1f} | {median(ratios):.3f} |")


if __name__ == "__main__":
    main()
