"""The fleet under attack: a private Redis with an append-only file, and the supervisors and
workers of a system.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from handoff_queue.chaos.model_server import CUSTOM_HEADERS, PROCESS
from handoff_queue.shared.local.child_process_restarts import ChildSpec, Processes
from handoff_queue.shared.local.fork_server import (
    ForkedProcess,
    ForkServer,
    start_celery_fork_server,
)
from handoff_queue.shared.local.redis_server import PrivateRedis
from handoff_queue.shared.observability.failpoints import FAILPOINTS
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.trust.key_files import build_key_variables
from handoff_queue.supervisor.cli.celery_process import build_celery_command
from handoff_queue.supervisor.cli.errors import BAD_INPUT

COMMANDS = (
    "handoff_queue.supervisor.cli.submit",
    "handoff_queue.supervisor.cli.cancel",
    "handoff_queue.supervisor.cli.pause",
    "handoff_queue.supervisor.cli.dead",
    "handoff_queue.supervisor.cli.fork",
    "handoff_queue.supervisor.cli.serve",
    "handoff_queue.supervisor.client.client",
    "handoff_queue.supervisor.serve.application",
    "handoff_queue.supervisor.serve.server",
)
"""Modules of the commands that users type during a run, and of the HTTP servers."""
OWN_SPECIALISTS = Path(__file__).with_name("specialists")
"""Folder of the specialists for several models, for notes and for shared runs."""
REDIS = "redis"
WORKER, SUPERVISOR, CONSOLE = "worker", "supervisor", "console"
SWEEP_S = 0.3
DRAIN_S = 0.4
RETENTION_S = 3_600
BATCH_POLL_S = 0.3
"""HANDOFF_BATCH_POLL_S of the fleet."""
RATE_WAIT_S = 0.1
"""HANDOFF_RATE_WAIT_S of the fleet: so short that a handoff frees its slot after a short
refusal, too.
"""
READY_WITHIN_S = 120.0
"""Longest time in seconds until all processes are ready: enough on a busy machine."""


@dataclass(frozen=True, slots=True)
class Size:
    """Number of processes and slots."""

    workers: int = 4
    supervisors: int = 3
    slots: int = 4
    """Slots of each process. A supervisor uses at most half of its slots for roles; further
    handoffs of roles go to a queue.
    """
    lease_s: float = 3.0
    consoles: int = 2
    """HTTP servers, if the system has any."""


@dataclass(slots=True)
class Fleet:
    """The running processes, and the actions on them."""

    folder: Path
    size: Size
    url: str
    processes: Processes
    connection: Connection
    """Connection of the killer and the invariants."""
    fork_server: ForkServer | None
    """Fork server of the processes and of the user's commands; None if the system has none."""
    ports: tuple[int, ...] = ()
    """Ports of the HTTP servers."""

    def list_processes(self) -> dict[str, int]:
        """Return the running processes: name -> pid."""
        return self.processes.get_pids()

    def get_name(self, pid: int) -> str:
        """Return the name of a process, also of an ended one."""
        return self.processes.get_names_by_pid().get(pid, "?")

    def is_ready(self, name: str) -> bool:
        """Return whether a process runs and takes work."""
        return self.processes.is_ready(name)

    def find_ready(self, kind: str) -> dict[str, int]:
        """Return the processes of a kind that take work."""
        pids: dict[str, int] = {}
        for name, pid in self.list_processes().items():
            if name.startswith(kind) and self.is_ready(name):
                pids[name] = pid
        return pids

    def send_signal(self, name: str, number: signal.Signals) -> bool:
        """Send a signal. Return False if the process has ended."""
        pid = self.list_processes().get(name)
        if pid is None:
            return False
        with suppress(ProcessLookupError):
            os.kill(pid, number)
            return True
        return False

    def start_command(
        self, command: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes] | ForkedProcess:
        """Start a command of a user, without input and output. A fork starts in a tenth of the
        time.

        Args:
            environment: all variables of the process.
        """
        if self.fork_server is None or not self.fork_server.can_fork(command, environment):
            nothing = subprocess.DEVNULL
            return subprocess.Popen(
                command, env=environment, stdin=nothing, stdout=nothing, stderr=nothing
            )
        with Path(os.devnull).open("wb") as output:
            return self.fork_server.fork(command, environment, output.fileno())

    def start_user_command(
        self, words: Sequence[str], points: Path | None
    ) -> subprocess.Popen[bytes] | ForkedProcess:
        """Start `handoff WORDS` of a user without a model.

        Args:
            points: folder of its failpoints; None: it has none.
        """
        environment = {
            **os.environ,
            "HANDOFF_REDIS_URL": self.url,
            "HANDOFF_OFFLINE": "true",
            "HANDOFF_MODE": "team",
            **build_key_variables(None),
        }
        if points is not None:
            environment[FAILPOINTS] = str(points)
        command = [sys.executable, "-P", "-m", "handoff_queue.supervisor.cli.main", *words]
        return self.start_command(command, environment)

    def get_points(self, kind: str) -> Path:
        """Return the folder of failpoints for all processes of a kind."""
        return get_points_folder(self.folder, kind)


def get_points_folder(folder: Path, kind: str) -> Path:
    return folder / "failpoints" / kind


def arm(points: Path, point: str, order: str) -> None:
    """Arm a point atomically, so that no process reads the file before its text is there."""
    temporary_file = points / f".{point}"
    temporary_file.write_text(order)
    temporary_file.rename(points / point)


@dataclass(frozen=True, slots=True)
class Member:
    """A Celery process, or an HTTP server."""

    name: str
    kind: str
    """Kind of its failpoints."""
    app: str
    """Module of the Celery app; '' for an HTTP server."""
    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    port: int | None = None
    """Port of an HTTP server."""

    @property
    def command(self) -> list[str]:
        """The command line."""
        if self.app:
            return build_celery_command(self.app, "worker", "-n", f"{self.name}@%h", *self.options)
        main = [sys.executable, "-P", "-m", "handoff_queue.supervisor.cli.main"]
        return [*main, "serve", "--port", str(self.port), *self.options]

    def accepts_connections(self) -> bool:
        """Return whether an HTTP server accepts connections."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port or 0), 1.0):
            return True
        return False


@contextmanager
def running_fleet(
    folder: Path,
    size: Size,
    model_url: str,
    members: Sequence[Member],
    fork_server: ForkServer | None = None,
) -> Iterator[Fleet]:
    """Run a fleet that is ready when the block begins, and that is killed after the block.

    Args:
        fork_server: a running fork server with our modules; None: start one for this fleet.

    Raises:
        UserError: a process does not start.
    """
    with ExitStack() as parts:
        if fork_server is None:
            # a fork replaces a killed process in half a second
            fork_server = start_celery_fork_server(COMMANDS, is_offline=model_url is None)
            if fork_server is not None:
                parts.enter_context(fork_server)
        processes = parts.enter_context(Processes(folder, fork_server))
        url = PrivateRedis(processes, folder, is_killed_on_purpose=True).start()
        _start(processes, folder, build_environment(folder, url, size, model_url), members)
        processes.wait_until_ready(READY_WITHIN_S)
        connection = Connection(url)
        try:
            ports = tuple(member.port for member in members if member.port)
            yield Fleet(folder, size, url, processes, connection, fork_server, ports)
        finally:
            connection.close()
            processes.stop(grace_s=0.0)


def _start(
    processes: Processes, folder: Path, common: dict[str, str], members: Sequence[Member]
) -> None:
    for member in members:
        points = get_points_folder(folder, member.kind)
        points.mkdir(parents=True, exist_ok=True)
        own_environment = {
            CUSTOM_HEADERS: f"{PROCESS}: {member.name}",
            FAILPOINTS: str(points),
            **member.environment,
        }
        processes.start(
            ChildSpec(
                member.name,
                member.command,
                {**common, **own_environment},
                is_ready=member.accepts_connections if member.port else None,
                is_killed_on_purpose=True,
                fatal_exit_code=BAD_INPUT,
            )
        )


def build_environment(folder: Path, url: str, size: Size, model_url: str) -> dict[str, str]:
    """Return the environment of a fleet. It sets each variable that could lead a run to a
    model that costs money.
    """
    return {
        "HANDOFF_REDIS_URL": url,
        **build_key_variables(None),
        "HANDOFF_OFFLINE": "false",
        "HANDOFF_MODEL_PROVIDER": "anthropic",
        "HANDOFF_SUPERVISOR_MODEL": "",
        "HANDOFF_SPECIALIST_MODEL": "",
        "HANDOFF_SPECIALISTS_DIRS": str(OWN_SPECIALISTS),
        "HANDOFF_TOOLS_DIRS": "",
        "HANDOFF_LEASE_S": str(size.lease_s),
        "HANDOFF_SWEEP_INTERVAL_S": str(SWEEP_S),
        "HANDOFF_DRAIN_S": str(DRAIN_S),
        "HANDOFF_RATE_WAIT_S": str(RATE_WAIT_S),
        "HANDOFF_BATCH_POLL_S": str(BATCH_POLL_S),
        "HANDOFF_RETENTION_S": str(RETENTION_S),
        "HANDOFF_CACHE_DIR": str(folder / "cache"),
        "ANTHROPIC_API_KEY": "none",
        "ANTHROPIC_AUTH_TOKEN": "",
        "ANTHROPIC_BASE_URL": model_url,
    }
