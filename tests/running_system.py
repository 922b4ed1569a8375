"""Run the supervisor and the workers as real processes on a private Redis."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from handoff_queue.chaos.leaks import find_keys_without_expiry
from handoff_queue.shared.broker.transport import list_library_scripts
from handoff_queue.shared.local.child_process_restarts import ChildSpec, Processes
from handoff_queue.shared.local.redis_server import PrivateRedis
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.supervisor.client import client
from handoff_queue.testing import MessagesServer
from tests import forked_processes
from tests.system_users import CLIENT, SystemUsers, refused_commands

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
    """Redis URLs, processes and environment of a running system."""

    redis_url: str
    """URL of Redis for programs that submit and follow jobs."""
    processes: Processes
    environment: dict[str, str]
    admin_url: str
    """URL of Redis with all rights."""
    admin: client.Client
    """Client with all rights."""
    users: SystemUsers | None = None
    """None: all processes use one Redis user."""

    def jobs(self) -> client.Client:
        """Return a client of this system."""
        return client.connect(self.redis_url, Settings(offline=True))

    def url_of(self, user: str) -> str:
        """Return the URL of Redis for a kind of process."""
        return self.admin_url if self.users is None else self.users.url_of(user)

    def celery(self, name: str, *arguments: str) -> ChildSpec:
        """Return a process that runs `python -m celery` with these arguments. It has the Redis
        user of its kind.
        """
        environment = dict(self.environment)
        if self.users is not None:
            environment["HANDOFF_REDIS_URL"] = self.users.url_of_process(arguments)
        return ChildSpec(name, [sys.executable, "-m", "celery", *arguments], environment)

    def celery_worker(
        self,
        name: str,
        app: str,
        queues: str,
        slots: int = 8,
        *options: str,
        variables: Mapping[str, str] | None = None,
    ) -> ChildSpec:
        """Return a process of Celery's command `worker`, with the node name of the process.

        Args:
            app: the module of the Celery app.
            queues: names, separated by commas.
            options: further options of the command.
            variables: environment variables of this process only.
        """
        arguments = ("-A", app, "worker", "-n", f"{name}@%h", "-Q", queues, "-c", str(slots))
        spec = self.celery(name, *arguments, *options)
        return replace(spec, environment={**spec.environment, **(variables or {})})

    def start_worker(self, name: str, app: str, queues: str, slots: int = 8, *options: str) -> None:
        """Start a process of `celery_worker`. It starts again after its death."""
        self.processes.start(self.celery_worker(name, app, queues, slots, *options))


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

    Each kind of process has its own Redis user. Fail if the system leaves a key without an
    expiry, or if Redis refused a command.

    Args:
        workers: name, app and queues of each worker process.
        settings: environment variables of all processes, in addition to the defaults.
        append_only: Redis persists its data, and restarts when it dies.
    """
    with Processes(folder, forked_processes.shared_fork_server()) as processes:
        url = PrivateRedis(processes, folder, append_only=append_only).start()
        users = SystemUsers(url, folder / "redis" / "redis.conf", settings or {})
        with system_on(url, processes, folder, workers, settings, users) as system:
            yield system


@contextmanager
def system_on(
    url: str,
    processes: Processes,
    folder: Path,
    workers: Sequence[tuple[str, str, str]] = (SUPERVISOR, ALL_SPECIALISTS),
    settings: Mapping[str, str] | None = None,
    users: SystemUsers | None = None,
) -> Iterator[RunningSystem]:
    """Start the system on a running Redis, yield it when it is ready, and check its keys.

    Args:
        url: URL with all rights.
        users: the users of the processes. None: all processes use the URL.
    """
    client_url = url if users is None else users.url_of(CLIENT)
    environment = {
        "HANDOFF_REDIS_URL": client_url,
        "HANDOFF_OFFLINE": "true",
        "HANDOFF_CACHE_DIR": str(folder / "cache"),
        "PYTHONPATH": str(ROOT),
        **(settings or {}),
    }
    admin = client.connect(url, Settings(offline=True))
    admin.store.connection.load_scripts(
        list_library_scripts()
    )  # workers may start before a supervisor
    system = RunningSystem(client_url, processes, environment, url, admin, users)
    for name, app, queues in workers:
        system.start_worker(name, app, queues)
    processes.wait_until_ready()
    yield system
    redis = admin.store.connection.redis
    assert not (left := find_keys_without_expiry(redis)), left
    if users is not None:  # other tests use the same Redis with their own users
        assert not (refused := refused_commands(redis)), refused
    admin.store.connection.close()
