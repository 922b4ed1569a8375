"""Cost of one job by process: processor time, round trips to Redis and their bytes. It is
compared with a bare Celery canvas and with the same number of bare messages: `python -m
benchmarks.trips`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from threading import Thread
from typing import Any

import redis

from benchmarks.arguments import parse_positive
from benchmarks.canvas_jobs import Canvas
from benchmarks.fleets import (
    CANVAS_SUPERVISOR,
    CANVAS_WORKER,
    ROOT,
    SLOTS,
    SUPERVISOR,
    WORKER,
    build_environment,
    fleet,
    private_redis,
)
from benchmarks.handoff_jobs import HandoffJobs
from benchmarks.processor_time import read_cpu_seconds
from benchmarks.timed_model import STEPS
from handoff_queue.shared.store.redis.script import build_source
from handoff_queue.shared.types.plan import Synthesis

MESSAGES = STEPS + 2
"""Messages of one job: each step's handoff, their fan-in, and the message that begins the job.
Its roles run in the supervisor's process.
"""
HANDOFFS = STEPS + 2
"""Handoffs of one job: the planner's, the steps', the assessor's. Each makes one model call."""
NEEDED = HANDOFFS + 2
"""Messages if each handoff took one: `n` handoffs, their fan-in, and the message that begins
the job.
"""
COUNTED = {
    "round trips": "total_reads_processed",
    "commands": "total_commands_processed",
    "KB to Redis": "total_net_input_bytes",
    "KB from Redis": "total_net_output_bytes",
}
"""Counted quantities, and Redis's names for them."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one job, or one message: milliseconds of processor time by process, and Redis's
    counts.
    """

    cpu_ms: Mapping[str, float]
    counted: Mapping[str, float]

    @property
    def total_ms(self) -> float:
        return sum(self.cpu_ms.values())


class Messages:
    """Bare messages: a task that does nothing, without a result."""

    def __init__(self, url: str, client: Any) -> None:
        os.environ["HANDOFF_REDIS_URL"] = url
        from benchmarks.canvas_tasks import nothing

        self._task, self._client = nothing, client

    def run(self, count: int) -> None:
        for _ in range(count):
            self._task.delay()
        while int(self._client.llen("canvas_worker")) or int(self._client.hlen("unacked")):
            time.sleep(0.02)


def read_cpu_by_process(pids: Mapping[str, int]) -> dict[str, float]:
    """Return the processor seconds of each process so far."""
    seconds = {"client": time.process_time()}
    for name, pid in pids.items():
        seconds[name] = read_cpu_seconds(pid)
    return seconds


def measure_cost(run: Any, count: int, pids: Mapping[str, int], client: Any) -> Cost:
    """Return the cost of one job of `count` in one batch."""
    cpu, stats = read_cpu_by_process(pids), client.info("stats")
    run(count)
    cpu_after, stats_after = read_cpu_by_process(pids), client.info("stats")
    cpu_ms: dict[str, float] = {}
    for name in cpu:
        cpu_ms[name.removeprefix("canvas_")] = 1000 * (cpu_after[name] - cpu[name]) / count
    counts: dict[str, float] = {}
    for name, key in COUNTED.items():
        counts[name] = (stats_after[key] - stats[key]) / count
        if name.startswith("KB"):
            counts[name] /= 1024
    return Cost(cpu_ms, counts)


def find_process(port: int, server: int, pids: Mapping[str, int]) -> str:
    """Return the process whose connection on loopback goes from this port to the server's
    port. A busy machine's list may be incomplete, so it is read again.
    """
    ends: list[str] = []
    for each_port in (port, server):
        ends.append(f"0100007F:{each_port:04X}")
    for _ in range(5):
        inode = None
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1:3] == ends:
                inode = fields[9]
                break
        for name, pid in pids.items():
            for fd in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    if str(fd.readlink()) == f"socket:[{inode}]":
                        return name
    return "nobody known"


@contextmanager
def count_commands(client: Any, pids: Mapping[str, int]) -> Iterator[Counter[tuple[str, str]]]:
    """Count commands by process and name during the block; a script has the name of its file."""
    scripts: dict[str, str] = {}
    for path in (ROOT / "shared" / "store" / "lua").glob("*.lua"):
        scripts[hashlib.sha1(build_source(path.stem).encode()).hexdigest()] = path.stem
    commands: Counter[tuple[str, str]] = Counter()
    ports: dict[int, str] = {}
    server = int(client.connection_pool.connection_kwargs["port"])

    def listen(monitor: Any) -> None:
        for entry in monitor.listen():
            words = entry["command"].split(" ", 2)
            if entry["client_type"] == "lua":
                continue
            if words[0] == "ECHO":
                return
            port = int(entry["client_port"])
            if port not in ports:
                ports[port] = find_process(port, server, pids)
            if words[0] == "EVALSHA":
                name = f"script {scripts.get(words[1], 'kombu or Celery')}"
            else:
                name = words[0]
            commands[ports[port], name] += 1

    with client.monitor() as monitor:
        thread = Thread(target=listen, args=(monitor,))
        thread.start()
        yield commands
        client.echo("over")
        thread.join()


def measure_trips(jobs: int, repeats: int) -> tuple[dict[str, Cost], Counter[tuple[str, str]]]:
    """Measure all three in turn, on one Redis; and the commands of a single job."""
    with (
        tempfile.TemporaryDirectory() as name,
        private_redis(Path(name) / "redis") as (url, server_pid),
    ):
        folder, server = Path(name), {"redis": server_pid}
        environment = build_environment(url, 0.0, Synthesis.MERGE)
        with (
            redis.Redis.from_url(url) as client,
            fleet(
                folder / "handoff", environment, [SUPERVISOR, WORKER], slots=SLOTS
            ) as project_pids,
            fleet(
                folder / "canvas", environment, [CANVAS_SUPERVISOR, CANVAS_WORKER], slots=SLOTS
            ) as canvas_pids,
        ):
            project, canvas, messages = HandoffJobs(url), Canvas(url), Messages(url, client)
            project.warm_up()
            turns: list[tuple[str, Any, Mapping[str, int], int]] = [
                ("this project", project, project_pids | server, 1),
                ("bare canvas", canvas, canvas_pids | server, 1),
                ("bare message", messages, canvas_pids | server, MESSAGES),
            ]
            for _, runner, _, _ in turns:
                runner.run(20)
            costs: dict[str, list[Cost]] = {}
            for whose, *_ in turns:
                costs[whose] = []
            for _ in range(repeats):
                for whose, runner, pids, each in turns:
                    costs[whose].append(measure_cost(runner.run, jobs * each, pids, client))
            with count_commands(client, {"client": os.getpid(), **project_pids}) as commands:
                for _ in range(10):
                    project.run(1)
    return {whose: compute_mean(of) for whose, of in costs.items()}, commands


def compute_mean(costs: list[Cost]) -> Cost:
    def compute_means(rows: list[Mapping[str, float]]) -> dict[str, float]:
        by_name: dict[str, float] = {}
        for name in rows[0]:
            by_name[name] = fmean(row[name] for row in rows)
        return by_name

    return Cost(
        compute_means([cost.cpu_ms for cost in costs]),
        compute_means([cost.counted for cost in costs]),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=parse_positive, default=50)
    parser.add_argument("--repeats", type=parse_positive, default=5)
    options = parser.parse_args()
    costs, commands = measure_trips(options.jobs, options.repeats)
    project, message = costs["this project"], costs["bare message"]
    shape = (
        f"{options.jobs} jobs x {options.repeats}, each of {HANDOFFS} handoffs and turns,"
        f" {MESSAGES} messages"
    )
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, {shape}\n")
    rows = [*next(iter(costs.values())).cpu_ms, *COUNTED]
    print(f"| | {' | '.join(costs)} |\n|---|{'---|' * len(costs)}")
    for row in rows:
        cells: list[str] = []
        for cost in costs.values():
            cells.append(f"{({**cost.cpu_ms, **cost.counted})[row]:.1f}")
        print(
            f"| {row}{' (ms of processor)' if row in project.cpu_ms else ''}"
            f" | {' | '.join(cells)} |"
        )
    totals: list[str] = []
    for cost in costs.values():
        totals.append(f"**{cost.total_ms:.1f}**")
    print(f"| **ms of processor in all** | {' | '.join(totals)} |")
    print(
        "\nCPU of a job over that of the canvas:"
        f" **{project.total_ms / costs['bare canvas'].total_ms:.2f}**"
    )
    for count, which in (
        (MESSAGES, "that it takes"),
        (NEEDED, "that its handoffs would take, if none were run in place"),
    ):
        print(
            f"CPU of a job over that of the {count} bare messages {which}:"
            f" **{project.total_ms / (count * message.total_ms):.2f}**"
        )
    print(
        f"Round trips per turn: {project.counted['round trips'] / HANDOFFS:.1f}\n\n| process"
        " | command | a job |\n|---|---|---|"
    )
    for (process, command), count in sorted(
        commands.items(), key=lambda item: (item[0][0], -item[1])
    ):
        if count >= 5 and not re.fullmatch("PING|INFO|SCRIPT", command):
            print(f"| {process} | {command} | {count / 10:.1f} |")


if __name__ == "__main__":
    main()
