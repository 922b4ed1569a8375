"""Run the supervisor and the workers as real processes on a private Redis."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from handoff_queue.chaos.leaks import keys_for_ever
from handoff_queue.shared.local.processes import ChildSpec, Processes
from handoff_queue.shared.local.redis_server import PrivateRedis
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.supervisor.client import client
from handoff_queue.testing import MessagesServer
from tests import forked_processes

ROOT = Path(__file__).parents[1]
DOCUMENTS = ROOT / "examples" / "vector-databases"
SUPERVISOR = ("supervisor", "handoff_queue.supervisor.app", "supervisor,submissions,roles")
ALL_SPECIALISTS = (
    "everyone",
    "handoff_queue.workers.app",
    "researcher,analyst,writer,coder,generalist,reviewer",
)
"""One worker process for all specialists: (name, app, queues)."""


@dataclass(frozen=True)
class RunningSystem:
    """Redis URL, processes and environment of a running system."""

    redis_url: str
    processes: Processes
    environment: dict[str, str]

    def jobs(self) -> client.Client:
        """Return a client of this system."""
        return client.connect(self.redis_url, Settings(offline=True))

    def celery(self, name: str, *arguments: str) -> ChildSpec:
        """Return a process that runs `python -m celery` with these arguments."""
        return ChildSpec(name, [sys.executable, "-m", "celery", *arguments], self.environment)


def model_environment(server: MessagesServer, **more: str) -> dict[str, str]:
    """Return the environment of processes that call this model server."""
    return {
        "HANDOFF_OFFLINE": "false",
        "ANTHROPIC_API_KEY": "no-key",
        "ANTHROPIC_BASE_URL": server.url,
        **more,
    }


@contextmanager
def running_system(
    folder: Path,
    workers: Sequence[tuple[str, str, str]] = (SUPERVISOR, ALL_SPECIALISTS),
    settings: Mapping[str, str] | None = None,
    *,
    append_only: bool = False,
) -> Iterator[RunningSystem]:
    """Start the system in forked processes, yield it when it is ready, and stop it.

    Fail if the system leaves a key without an expiry.

    Args:
        workers: name, app and queues of each worker process.
        settings: environment variables of all processes, in addition to the defaults.
        append_only: Redis persists its data, and restarts when it dies.
    """
    with Processes(folder, forked_processes.shared_fork_server()) as processes:
        url = PrivateRedis(processes, folder, append_only=append_only).start()
        with system_on(url, processes, folder, workers, settings) as system:
            yield system


@contextmanager
def system_on(
    url: str,
    processes: Processes,
    folder: Path,
    workers: Sequence[tuple[str, str, str]] = (SUPERVISOR, ALL_SPECIALISTS),
    settings: Mapping[str, str] | None = None,
) -> Iterator[RunningSystem]:
    """Start the system on a running Redis, yield it when it is ready, and check its keys."""
    environment = {
        "HANDOFF_REDIS_URL": url,
        "HANDOFF_OFFLINE": "true",
        "HANDOFF_CACHE_DIR": str(folder / "cache"),
        "PYTHONPATH": str(ROOT),
        **(settings or {}),
    }
    system = RunningSystem(url, processes, environment)
    for name, app, queues in workers:
        processes.start(
            system.celery(name, "-A", app, "worker", "-n", f"{name}@%h", "-Q", queues, "-c", "8")
        )
    processes.wait_until_ready()
    yield system
    connection = Connection(url)
    assert keys_for_ever(connection.redis) == []
    connection.close()
