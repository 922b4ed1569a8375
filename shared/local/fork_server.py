"""Python processes that start in milliseconds, as forks of a process that has imported
everything. Linux only.

Importing Celery, the model's SDK and pydantic costs seconds of processor time. Four processes
on two cores would import them one after the other. The fork server saves two thirds of the
processor time and more than half of the memory of `handoff run` and `handoff up` (`python -m
benchmarks.start_up`). A forked process is like any other process: it has its own pid, title in
`ps`, environment, folder, session, signals and exit code.

`start_celery_fork_server` makes the fork server for supervisors, workers and Flower of one machine.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Self

from handoff_queue.shared.local.fork_server_process import ForkRequest
from handoff_queue.shared.local.parent_death_guard import build_guarded_command

_STARTUP_PREFIXES = (
    "PYTHON",
    "LANG",
    "LC_",
    "OTEL_",
    "NO_COLOR",
    "FORCE_COLOR",
    "TERM",
    "CELERY_",
    "KOMBU_",
    "C_",
)
"""Prefixes of variables that the interpreter or a library reads during its import. A child
with another value for such a variable cannot be forked.
"""
CELERY_MODULES = (
    "billiard.pool",
    "celery.app.control",
    "celery.app.events",
    "celery.apps.worker",
    "celery.bin.celery",
    "celery.concurrency.thread",
    "celery.worker.autoscale",
    "celery.worker.components",
    "celery.worker.consumer",
    "celery.worker.consumer.delayed_delivery",
    "celery.worker.strategy",
    "kombu.transport.redis",
)
LATER = (
    "handoff_queue.shared.broker.consumer",
    "handoff_queue.shared.broker.isolated_worker",
    "handoff_queue.shared.providers.anthropic.client_factory",
    "genai_prices",
    "re2",
    "snowballstemmer",
)
"""Modules that the rooms import on demand. Here they are imported once, before the fork."""
OFFLINE_MODEL = "handoff_queue.shared.providers.offline.transport"
REAL_MODEL = "handoff_queue.shared.providers.anthropic.client_factory:load_certificates"
SIGNATURES = "handoff_queue.shared.trust.key_files:load_cryptography"
ROOMS = (
    "handoff_queue.shared.broker.celery_app:prepare_forks",
    "handoff_queue.supervisor.assembly:prepare_forks",
    "handoff_queue.workers.assembly:prepare_forks",
)
"""Names only: the supervisor must not import the code of the workers."""


def is_supported() -> bool:
    """Return whether this Python, kernel and sandbox can fork on demand. Some builds and
    seccomp profiles cannot.
    """
    try:
        os.close(os.memfd_create("request"))
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return sys.platform == "linux"


class ForkedProcess:
    """A forked child, with the part of the interface of `subprocess.Popen` that its parents
    need. It is thread-safe.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.returncode: int | None = None
        self.is_lost = False
        """True if the fork server died before it reported the end of the child."""
        self._pid: int | None = None
        self._connection = connection
        self._partial_line = b""
        self._lock = threading.Lock()
        weakref.finalize(self, connection.close)  # the fork server then kills the child

    @property
    def pid(self) -> int | None:
        """None: the child has not begun, or it ended before its begin."""
        self.poll()
        return self._pid

    def poll(self) -> int | None:
        """Return the exit code of the child, or None while it runs."""
        while self.returncode is None and self._read_messages(0.0):
            pass
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the child, and return its exit code.

        Args:
            timeout: seconds; None: no limit.

        Raises:
            subprocess.TimeoutExpired: the child still runs after this time.
        """
        begin = time.monotonic()
        while self.returncode is None:
            left_s = None
            if timeout is not None:
                left_s = max(0.0, begin + timeout - time.monotonic())
            if not self._read_messages(left_s) and left_s == 0.0:
                raise subprocess.TimeoutExpired("a forked process", timeout or 0.0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal. A child that has not begun never begins."""
        if self.poll() is not None:
            return
        if self._pid is None:
            self._connection.shutdown(socket.SHUT_RDWR)
        else:
            with suppress(ProcessLookupError):
                os.kill(self._pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def abandon(self) -> None:
        """Let the fork server kill the child, also if the child has not begun."""
        with suppress(OSError):  # the fork server has gone
            self._connection.shutdown(socket.SHUT_RDWR)

    def fileno(self) -> int:
        """Return the descriptor that is readable when `poll` has news."""
        return self._connection.fileno()

    def _read_messages(self, timeout_s: float | None) -> bool:
        """Read the fork server's messages, for at most this time. Several threads may wait.
        Return False if none came in this time.
        """
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        if not poll.poll(None if timeout_s is None else timeout_s * 1_000):
            return False
        with self._lock:
            if self.returncode is not None:
                return True
            with suppress(BlockingIOError):  # another thread has taken it
                received_bytes = self._connection.recv(100, socket.MSG_DONTWAIT)
                *lines, self._partial_line = (self._partial_line + received_bytes).split(b"\n")
                for kind, number in (line.split() for line in lines):
                    if kind == b"pid":
                        self._pid = int(number)
                    else:
                        self.returncode = int(number)
                if not received_bytes and self.returncode is None:
                    # The fork server died, and its children with it.
                    self.is_lost = True
                    self.returncode = -signal.SIGKILL
        return True


class ForkServer:
    """A fork server. `with ForkServer(modules) as server:` returns at once, and children are
    forked after the imports.

    The thread that enters must live as long as the server. Any thread may fork. The children
    end with the server.
    """

    def __init__(
        self, modules: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        """Make a server that imports these modules.

        Args:
            modules: `MODULE`, or `MODULE:FUNCTION` to also call a function. The children share
                what the function keeps in memory.
            environment: variables of the server, by default of this process. A child has its own
                variables.
        """
        self._modules = modules
        self._environment = dict(os.environ if environment is None else environment)

    def __enter__(self) -> Self:
        self._requests, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with child_end:
            self._process = self._start(child_end.fileno())
        return self

    def _start(self, control: int) -> subprocess.Popen[bytes]:
        """Start the server. It reads requests from the inherited socket `control`."""
        return subprocess.Popen(
            build_guarded_command(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "handoff_queue.shared.local.fork_server_process",
                    str(control),
                    *self._modules,
                ]
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            # the child reports errors in a module
            stderr=subprocess.DEVNULL,
            env=self._environment,
            pass_fds=[control],
            start_new_session=True,  # the parent passes Ctrl-C on
        )

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._requests.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def can_fork(self, command: Sequence[str], environment: Mapping[str, str]) -> bool:
        """Return whether a fork would equal a new process: `python [-P] -m MODULE ...`,
        without other values of variables that are read only once.
        """
        return (
            _find_module_index(command) is not None
            and _select_startup_variables(environment)
            == _select_startup_variables(self._environment)
            and self._is_running()
        )

    def _is_running(self) -> bool:
        return self._process.poll() is None

    def fork(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        output: int,
        *,
        errors: int | None = None,
        stdin: int | None = None,
        folder: Path | None = None,
        leads_session: bool = False,
    ) -> ForkedProcess:
        """Fork a child that runs this command.

        Args:
            environment: All variables of the child.
            output: File descriptor of its stdout.
            errors: File descriptor of its stderr, by default the same as its stdout.
            stdin: File descriptor of its stdin, by default empty.
            folder: Working directory, by default the current one.
            leads_session: Whether the child starts a session.

        Raises:
            ValueError: the command cannot be forked.
        """
        index = _find_module_index(command)
        if index is None:
            raise ValueError(f"not `python -m MODULE`: {command}")
        request = ForkRequest(
            module=command[index],
            arguments=list(command[index + 1 :]),
            environment=dict(environment),
            folder=str(folder or Path.cwd()),
            is_safe_path="-P" in command[:index],
            leads_session=leads_session,
        )
        parent_end, child_end = socket.socketpair()
        with (
            os.fdopen(os.memfd_create("request"), "w+b") as request_file,
            Path(os.devnull).open("rb") as nothing,
            child_end,
        ):
            request_file.write(json.dumps(asdict(request)).encode())
            request_file.seek(0)  # in memory: an environment holds secrets
            streams = (
                nothing.fileno() if stdin is None else stdin,
                output,
                output if errors is None else errors,
            )
            # If the server has died, `ForkedProcess` reports it.
            with suppress(OSError):
                socket.send_fds(
                    self._requests, [b"!"], [request_file.fileno(), *streams, child_end.fileno()]
                )
        return ForkedProcess(parent_end)


def _find_module_index(command: Sequence[str]) -> int | None:
    """Return the index of MODULE in a command `python [-P] -m MODULE`; None: another command."""
    for options in (["-m"], ["-P", "-m"]):
        index = 1 + len(options)
        if list(command[:index]) == [sys.executable, *options] and len(command) > index:
            return index
    return None


def _select_startup_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that Python or a library reads only when a process starts."""
    values: dict[str, str] = {}
    for name, value in environment.items():
        if name.startswith(_STARTUP_PREFIXES):
            values[name] = value
    return values


def start_celery_fork_server(
    modules: Sequence[str] = (), *, is_offline: bool = False
) -> ForkServer | None:
    """Return a fork server that has imported Celery and our rooms.

    Return None if the system cannot fork on demand. Separate processes then start more slowly.

    Args:
        modules: further modules to import.
        is_offline: True if most processes will use the offline model.
    """
    if not is_supported():
        return None
    model = OFFLINE_MODEL if is_offline else REAL_MODEL
    return ForkServer((*CELERY_MODULES, *LATER, *ROOMS, SIGNATURES, model, *modules))
