"""The rows of the table: the processes of each, and the processes that measure them."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.driver import FOLDER, Driver
from benchmarks.peers_model import WAY
from benchmarks.timed_model import DELAY, SYNTHESIS, TimedCall
from handoff_queue.shared.local.child_process_restarts import ChildSpec, Processes
from handoff_queue.shared.local.fork_server import ForkServer
from handoff_queue.shared.local.redis_server import PrivateRedis
from handoff_queue.shared.types.plan import Synthesis

ROOT = Path(__file__).parents[1]
BENCH = Path(sys.prefix) / "bench"
"""Folder in which `.ci/install bench` installs the other systems."""
SLOTS = 16
"""Slots of each process if calls take no time."""


@dataclass(frozen=True, slots=True)
class ProcessKind:
    """Celery processes of one kind."""

    name: str
    app: str
    queues: str
    waiting_slots: int
    """Slots of all its processes together if calls take time, so that 500 jobs at once only
    wait for calls.
    """


@dataclass(frozen=True, slots=True)
class SystemRow:
    """A row of the table: one system that runs the jobs."""

    name: str
    driver: str
    """See `driver.RUNNERS`."""
    parts: tuple[ProcessKind, ...] = ()
    copies: int = 1
    """Processes of each part."""

    @property
    def is_peer(self) -> bool:
        return not self.parts


SUPERVISOR = ProcessKind(
    "supervisor", "benchmarks.handoff_supervisor", "supervisor,submissions,roles", 1_000
)
"""Half of its slots may hold a call, which is one for each job."""
WORKER = ProcessKind("worker", "benchmarks.handoff_worker", "researcher", 1_500)
CANVAS_SUPERVISOR = ProcessKind(
    "canvas_supervisor", "benchmarks.canvas_tasks", "canvas_supervisor", 500
)
CANVAS_WORKER = ProcessKind("canvas_worker", "benchmarks.canvas_tasks", "canvas_worker", 1_500)

BARE_CANVAS = SystemRow("bare canvas", "canvas", (CANVAS_SUPERVISOR, CANVAS_WORKER))
LANGGRAPH = SystemRow("LangGraph, threads", "langgraph")
LANGGRAPH_ASYNC = SystemRow("LangGraph, async", "langgraph_async")
THIS_PROJECT = SystemRow("this project, 1 worker", "handoff", (SUPERVISOR, WORKER))
THIS_PROJECT_TWO_WORKERS = SystemRow(
    "this project, 2 workers", "handoff", (SUPERVISOR, WORKER), copies=2
)
ROWS = (BARE_CANVAS, LANGGRAPH, LANGGRAPH_ASYNC, THIS_PROJECT, THIS_PROJECT_TWO_WORKERS)


def list_installed_rows() -> tuple[SystemRow, ...]:
    """Return the rows whose packages are installed."""
    rows: list[SystemRow] = []
    for row in ROWS:
        if BENCH.exists() or not row.is_peer:
            rows.append(row)
    return tuple(rows)


def build_environment(url: str, delay_s: float, synthesis: Synthesis) -> dict[str, str]:
    """Return the environment of a row's processes."""
    return {
        "HANDOFF_REDIS_URL": url,
        "HANDOFF_OFFLINE": "true",
        "HANDOFF_LOG_LEVEL": "WARNING",
        "PYTHONPATH": str(ROOT),
        DELAY: str(delay_s),
        SYNTHESIS: synthesis.value,
    }


@contextmanager
def fleet(
    folder: Path,
    environment: Mapping[str, str],
    parts: Sequence[ProcessKind],
    copies: int = 1,
    slots: int = 0,
    fork_server: ForkServer | None = None,
) -> Iterator[dict[str, int]]:
    """Run Celery processes until the block ends. Gives the process ids.

    Args:
        slots: slots of each process; 0 means `waiting_slots` of each part.
        fork_server: a running fork server for the processes; None: they are new processes.
    """
    with Processes(folder, fork_server) as processes:
        for part in parts:
            for n in range(copies):
                name = f"{part.name}{n + 1 if copies > 1 else ''}"
                each = str(slots or -(-part.waiting_slots // copies))
                command = [
                    sys.executable,
                    "-m",
                    "celery",
                    "-A",
                    part.app,
                    "worker",
                    "-n",
                    f"{name}@bench",
                    "-Q",
                    part.queues,
                    "-c",
                    each,
                ]
                processes.start(ChildSpec(name, command, environment))
        processes.wait_until_ready()
        yield processes.get_pids()


@contextmanager
def private_redis(folder: Path) -> Iterator[tuple[str, int]]:
    """Run a private Redis. Gives its URL and its process id."""
    with Processes(folder) as processes:
        yield (
            PrivateRedis(processes, folder, append_only=False).start(),
            processes.get_pids()["redis"],
        )


@contextmanager
def messages_server(folder: Path, *arguments: str) -> Iterator[str]:
    """Run a provider on loopback, `benchmarks.streaming_server` with these arguments. Gives
    its URL.
    """
    with Processes(folder) as processes:
        command = [sys.executable, "-m", "benchmarks.streaming_server", *arguments]

        def read_url() -> str:
            return processes.get_log_path("server").read_text().strip()

        processes.start(
            ChildSpec(
                "server",
                command,
                {"PYTHONPATH": str(ROOT)},
                is_ready=lambda: read_url().startswith("http://"),
            )
        )
        processes.wait_until_ready()
        yield read_url()


@contextmanager
def running(
    row: SystemRow, call: TimedCall, synthesis: Synthesis, fork_server: ForkServer | None = None
) -> Iterator[tuple[Driver, dict[str, int]]]:
    """Start the row's processes; they end with the block. Gives the driver and the process
    ids. The HTTP server is not included, because it stands for the provider.

    Args:
        fork_server: see `fleet`.
    """
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder, pids, url = Path(name), {}, ""
        if row.parts:
            url, pids["redis"] = stack.enter_context(private_redis(folder / "redis"))
        environment = {**build_environment(url, call.seconds, synthesis), WAY: call.way.value}
        if call.is_over_http:
            provider = stack.enter_context(
                messages_server(folder / "server", "jobs", str(call.seconds), synthesis.value)
            )
            environment |= {
                "ANTHROPIC_BASE_URL": provider,
                "ANTHROPIC_API_KEY": "none",
                "HANDOFF_OFFLINE": "false",
            }
        pids |= stack.enter_context(
            fleet(
                folder / "fleet",
                environment,
                row.parts,
                row.copies,
                0 if call.seconds else SLOTS,
                fork_server,
            )
        )
        paths = os.pathsep.join([str(ROOT), *([str(BENCH)] if row.is_peer else [])])
        driver_environment = {**os.environ, **environment, "PYTHONPATH": paths, FOLDER: name}
        driver = stack.enter_context(Driver(row.driver, driver_environment, folder / "driver.log"))
        yield driver, {"driver": driver.pid, **pids}
