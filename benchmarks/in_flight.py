"""`python -m benchmarks.in_flight`: how many model calls one specialist process holds in
flight on one core, counted by the server.

Every job is one agent. The server streams each reply over two seconds, or over the requested
time. The worker runs on one core with any pool (gevent needs `.ci/install bench`).
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from benchmarks.arguments import parse_positive, parse_seconds
from benchmarks.fleets import BENCH, messages_server
from benchmarks.processor_time import read_cpu_seconds
from handoff_queue.shared.local.child_process_restarts import ChildSpec
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from tests.running_system import SUPERVISOR, RunningSystem, running_system

_ON_ONE_CORE = """
import os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
QUEUE = "generalist"


@dataclass(frozen=True, slots=True)
class PoolLoad:
    """Calls in flight of one process with this pool."""

    pool: str
    slots: int
    turns: int
    """Calls of a handoff, one after the other."""
    calls: int
    """Calls of all handoffs."""
    most: int
    """Maximum at once, counted by the server."""
    mean: float
    """Mean in flight, from the first call until fewer calls wait than there are slots."""
    took_s: float
    cpu_s: float
    memory_mb: float
    """The most, of the process and its children."""


def measure(
    folder: Path, pool: str, slots: int, turns: int, handoffs: int, takes_s: float
) -> PoolLoad:
    """Measure a pool.

    Args:
        takes_s: seconds of a call.
    """
    calls = turns * handoffs
    real = {"HANDOFF_OFFLINE": "false", "ANTHROPIC_API_KEY": "none"}
    with (
        messages_server(folder / "server", "turns", str(takes_s), str(turns)) as url,
        running_system(folder, (), {**real, "ANTHROPIC_BASE_URL": url}) as system,
    ):
        jobs = system.jobs()
        _start(system, pool, slots)
        ids = _wait_in_their_queue(system, jobs, handoffs)
        began = time.monotonic()
        _send_control_command(system, "add_consumer")
        with Watching(system.processes.get_pids()["worker"], lambda: _count(url)) as watching:
            for job_id in ids:
                status = jobs.wait(job_id, 600)
                assert status.value == "ok", f"{job_id} ended {status}"
        took_s = time.monotonic() - began
        jobs.store.connection.close()
        seen = _count(url)
        assert seen["all"] == calls, f"{seen['all']} calls, and not {calls}"
        return PoolLoad(
            pool,
            slots,
            turns,
            calls,
            seen["most"],
            watching.compute_mean_until(calls - slots),
            took_s,
            watching.cpu_s,
            watching.max_mb,
        )


def _start(system: RunningSystem, pool: str, slots: int) -> None:
    system.start_worker(*SUPERVISOR, 16)
    celery = [
        "-m",
        "celery",
        "-A",
        "handoff_queue.workers.app",
        "worker",
        "-n",
        "worker@%h",
        "-Q",
        QUEUE,
        "-P",
        pool,
        "-c",
        str(slots),
    ]
    paths = [
        *filter(None, [system.environment.get("PYTHONPATH")]),
        *([str(BENCH)] if pool == "gevent" else []),
    ]
    environment = system.environment | {"PYTHONPATH": os.pathsep.join(paths)}
    system.processes.start(
        ChildSpec("worker", [sys.executable, "-c", _ON_ONE_CORE, *celery], environment)
    )
    system.processes.wait_until_ready()


def _wait_in_their_queue(system: RunningSystem, jobs: Client, handoffs: int) -> list[JobId]:
    """Submit jobs, and wait until their handoffs are published before the worker takes the
    second one.
    """
    _send_control_command(system, "cancel_consumer")
    ids = list(
        jobs.submit_each(
            [Request(f"Say what part {n} says.", mode=Mode.SINGLE) for n in range(handoffs)]
        )
    )
    while (waiting := jobs.store.connection.redis.llen(QUEUE)) < handoffs - 1:
        print(waiting, end=" \r", file=sys.stderr)
        time.sleep(0.2)
    return ids


def _send_control_command(system: RunningSystem, control_command: str) -> None:
    command = system.celery(
        control_command,
        "-A",
        "handoff_queue.workers.app",
        "control",
        "-d",
        f"worker@{socket.gethostname()}",
        control_command,
        QUEUE,
    ).command
    subprocess.run(command, env=os.environ | system.environment, check=True, capture_output=True)


def _count(url: str) -> dict[str, int]:
    with urllib.request.urlopen(f"{url}/count", timeout=30) as answer:
        counts: dict[str, int] = json.load(answer)
    return counts


class Watching:
    """Looks at the process and at the server ten times a second."""

    def __init__(self, pid: int, count: Callable[[], dict[str, int]]) -> None:
        self._pid = pid
        self._count = count
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._seen: list[dict[str, int]] = []
        self._cpu_before = self._read_processor_time()
        self.max_mb = self.cpu_s = 0.0

    def __enter__(self) -> Watching:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.cpu_s = self._read_processor_time() - self._cpu_before

    def compute_mean_until(self, answer_count: int) -> float:
        """Return the average number of calls in flight, from the first call until this number
        of answers.
        """
        counts: list[int] = []
        for seen in self._seen:
            if (seen["now"] or seen["all"]) and seen["all"] < answer_count:
                counts.append(seen["now"])
        return sum(counts) / max(1, len(counts))

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            self._seen.append(self._count())
            self.max_mb = max(
                self.max_mb, sum(_read_memory(pid) for pid in _iterate_processes(self._pid))
            )

    def _read_processor_time(self) -> float:
        return sum(read_cpu_seconds(pid) for pid in _iterate_processes(self._pid))


def _iterate_processes(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):  # the thread has ended in the meantime
            for child in (task / "children").read_text().split():
                yield from _iterate_processes(int(child))


def _read_memory(pid: int) -> float:
    return (
        int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        * os.sysconf("SC_PAGE_SIZE")
        / (1 << 20)
    )


def parse_pool(text: str) -> tuple[str, int]:
    """Parse a pool and its slots.

    Raises:
        argparse.ArgumentTypeError: the text is not POOL:SLOTS.
    """
    pool, _, slots = text.partition(":")
    if pool not in ("threads", "prefork", "gevent") or not slots:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not like threads:500, prefork:16 or gevent:500"
        )
    return pool, parse_positive(slots)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.in_flight", description=__doc__)
    parser.add_argument("--handoffs", type=parse_positive, default=1000)
    parser.add_argument(
        "--turns", type=parse_positive, nargs="+", default=[1, 4], help="calls of a handoff"
    )
    parser.add_argument("--seconds", type=parse_seconds, default=2.0, help="that a call takes")
    parser.add_argument(
        "pools",
        type=parse_pool,
        nargs="*",
        default=[("threads", 500), ("prefork", 16)],
        help="POOL:SLOTS",
    )
    options = parser.parse_args(arguments)
    print(
        "| pool | slots | calls a handoff | calls | most in flight | mean | calls/s | CPU ms a call"
        " | MB |\n" + "|---" * 9 + "|"
    )
    for (pool, slots), turns in product(options.pools, options.turns):
        with tempfile.TemporaryDirectory() as folder:
            result = measure(Path(folder), pool, slots, turns, options.handoffs, options.seconds)
        rate, cpu_ms = result.calls / result.took_s, result.cpu_s / result.calls * 1000
        cells = (
            pool,
            slots,
            turns,
            result.calls,
            result.most,
            f"{result.mean:.0f}",
            f"{rate:.0f}",
            f"{cpu_ms:.1f}",
            f"{result.memory_mb:.0f}",
        )
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
