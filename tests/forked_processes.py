"""Celery processes and commands that start quickly: forked from a process that has imported
everything (`shared.local.fork_server`).

A forked process behaves like any other process. The Python processes that a `handoff` command
starts are forked too (`with_forked_children`). A test that proves a cold start asks for it:
`Handoff(folder, is_cold=True)`, or `python -m celery`.
"""

from __future__ import annotations

import atexit
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

from handoff_queue.shared.local.fork_server import (
    CELERY_MODULES,
    LATER,
    OFFLINE_MODEL,
    REAL_MODEL,
    ROOMS,
    ForkedProcess,
    ForkServer,
    is_supported,
)
from handoff_queue.supervisor.cli.commands import ENTRIES
from tests.waiting import wait_until

ROOT = Path(__file__).parents[1]
SHARED = "TESTS_FORK_SERVER"
"""Variable with the address of the fork server that all test processes share."""
FORKED_COMMAND = "tests.forked_command"
COMMANDS = sorted(
    {f"handoff_queue.supervisor.cli.{entry.place.partition(':')[0]}" for entry in ENTRIES.values()}
)
LAZY_IMPORTS = (
    OFFLINE_MODEL,
    REAL_MODEL,
    "handoff_queue.supervisor.client.client",
    "handoff_queue.supervisor.cli.display.answer",
    "handoff_queue.supervisor.cli.follow_job",
    "handoff_queue.supervisor.cli.display.job_report",
    "handoff_queue.supervisor.serve.application",
    "handoff_queue.supervisor.serve.server",
    "typer.rich_utils",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.auto",
    "handoff_queue.workers.tools.mcp.listing",
    "handoff_queue.supervisor.serve.mcp.stdio",
)
"""Modules that commands import only when they need them."""
IMPORTED = (*CELERY_MODULES, *LATER, *ROOMS, *COMMANDS, *LAZY_IMPORTS)
"""Modules of all Celery processes and commands."""


def shared_fork_server() -> ForkServer | None:
    """Return the fork server of this test process, and start it at the first call.

    Return None if the platform has no fork server, or if the first call comes from a thread other
    than the main thread. A fork server ends with the thread that started it.
    """
    if not is_supported():
        return None
    if SHARED in os.environ:
        return _shared(os.environ[SHARED])
    is_main_thread = threading.current_thread() is threading.main_thread()
    is_running = bool(_started.cache_info().currsize)
    return _started() if is_main_thread or is_running else None


def fork_server_with(environment: Mapping[str, str], modules: Sequence[str] = ()) -> ForkServer:
    """Return a fork server for processes with these variables, in addition to ours.

    It is a fork of this test process's fork server, so no imported module may read the variables.

    Args:
        environment: variables that a library reads only once, such as `OTEL_...`.
        modules: modules to import, in addition to those of all Celery processes and commands.
    """
    return _ForkedForkServer((*IMPORTED, *modules), environment_with(environment))


class _ForkedForkServer(ForkServer):
    """A fork server that is a fork of this test process's fork server."""

    def _start(self, control: int) -> subprocess.Popen[bytes]:
        own_executable = sys.executable
        sys.executable = python()
        try:
            return super()._start(control)
        finally:
            sys.executable = own_executable


def environment_with(more: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a fork server."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


@cache
def _started() -> ForkServer:
    server = ForkServer(IMPORTED, environment_with({})).__enter__()
    atexit.register(server.__exit__, None, None, None)
    return server


def with_forked_children(
    command: Sequence[str], fork_server: ForkServer | None = None
) -> list[str]:
    """Return the command line `python -P -m MODULE ...` whose process forks its own children.

    In that process, `sys.executable` is a program that forks `python -P -m MODULE ...` in a fork
    server (`tests.forked_python`), by default in the fork server of this test process.
    """
    server = fork_server or shared_fork_server()
    if server is None:
        return list(command)
    return [*command[:3], FORKED_COMMAND, forked_python(server), *command[3:]]


def python() -> str:
    """Return a program that forks `python -P -m MODULE ...`, or the interpreter on a system
    without a fork server.
    """
    server = shared_fork_server()
    return sys.executable if server is None else forked_python(server)


@cache
def forked_python(server: ForkServer) -> str:
    """Return the path of the program that stands in for `sys.executable`.

    A command line without a module gets the interpreter. A parent-death guard has such a line.
    """
    address = _offer(lambda: server)
    program = Path(address).with_name("python")
    words = [sys.executable, "-I", "-S", f"{ROOT}/tests/forked_python.py", sys.executable, address]
    program.write_text(
        "#!/bin/sh\n"
        'case "$1 $2" in\n'
        f'"-m "*|"-P -m") exec {shlex.join(words)} "$@";;\n'
        f'*) exec {shlex.quote(sys.executable)} "$@";;\n'
        "esac\n"
    )
    program.chmod(0o700)
    return str(program)


def offer_fork_server() -> str:
    """Offer this process's fork server to the test processes, and return the address.

    The fork server starts when the first test process connects, or earlier at a call of
    `shared_fork_server`.
    """
    return _offer(_started)


def _offer(server: Callable[[], ForkServer]) -> str:
    """Listen for processes that use the fork server, and return the address."""
    folder = TemporaryDirectory()
    atexit.register(folder.cleanup)
    address = f"{folder.name}/socket"
    listener = socket.create_server(address, family=socket.AF_UNIX)
    threading.Thread(target=_share, args=(server, listener), daemon=True).start()
    return address


def _share(server: Callable[[], ForkServer], listener: socket.socket) -> None:
    """Give each process that connects the fork server's socket for requests."""
    while True:
        connection, _ = listener.accept()
        with connection:
            socket.send_fds(connection, [b"!"], [server()._requests.fileno()])


class _SharedForkServer(ForkServer):
    """The fork server of the process that started this test process."""

    def __init__(self, address: str) -> None:
        super().__init__((), environment_with({}))
        with socket.socket(socket.AF_UNIX) as owner:
            owner.connect(address)
            _, (orders,), _, _ = socket.recv_fds(owner, 1, 1)
        self._requests = socket.socket(fileno=orders)

    def _is_running(self) -> bool:
        """Return True. A fork server that has died ends this test process, too."""
        return True


_shared = cache(_SharedForkServer)


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    stdin: str,
    timeout_s: float,
    fork_server: ForkServer | None = None,
    read_by_commands: Collection[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Run a command like `run_cold`, in a forked process if the fork server supports the command.

    Args:
        fork_server: by default, the fork server of this test process.
        read_by_commands: names of variables that a command reads when it starts, and no import.

    Raises:
        subprocess.TimeoutExpired: the command took longer than `timeout_s`, and was killed.
    """
    if fork_server is None:
        fork_server = shared_fork_server()
    if fork_server is None or not _can_fork(fork_server, command, environment, read_by_commands):
        return run_cold(command, environment, folder, stdin, timeout_s)
    with (
        TemporaryFile("w+") as stdin_file,
        TemporaryFile("w+") as output,
        TemporaryFile("w+") as errors,
    ):
        stdin_file.write(stdin)
        stdin_file.seek(0)
        process = fork_server.fork(
            command,
            environment,
            output.fileno(),
            errors=errors.fileno(),
            stdin=stdin_file.fileno(),
            folder=folder,
        )
        try:
            exit_code = process.wait(timeout_s)
        finally:
            process.kill()
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(command, exit_code, output.read(), errors.read())


def run_cold(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    stdin: str,
    timeout_s: float,
) -> subprocess.CompletedProcess[str]:
    """Run a command in a new interpreter, and return its exit code, output and errors."""
    return subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        cwd=folder,
        env=environment,
    )


def _can_fork(
    server: ForkServer,
    command: Sequence[str],
    environment: Mapping[str, str],
    read_by_commands: Collection[str],
) -> bool:
    """Return whether a fork would equal a new process.

    The values of TERM and of `read_by_commands` may differ: a command reads them when it starts,
    and no import reads them.
    """
    may_differ = {"TERM", *read_by_commands}
    read_by_imports = {name: value for name, value in environment.items() if name not in may_differ}
    own = {name: os.environ[name] for name in may_differ & set(os.environ)}
    return server.can_fork(command, read_by_imports | own)


def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    output: int,
    errors: int,
    stdin: int | None = None,
    read_by_commands: Collection[str] = (),
) -> subprocess.Popen[bytes] | ForkedProcess:
    """Start a command like `start_cold`, forked if the fork server supports the command.

    `read_by_commands`: see `run`.
    """
    fork_server = shared_fork_server()
    if fork_server is None or not _can_fork(fork_server, command, environment, read_by_commands):
        return start_cold(command, environment, folder, output, errors, stdin)
    process = fork_server.fork(
        command, environment, output, errors=errors, stdin=stdin, folder=folder
    )
    wait_until(lambda: process.pid or process.poll() is not None, expected="the start of the child")
    return process


def start_cold(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    output: int,
    errors: int,
    stdin: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start a command in a new interpreter. It uses the file descriptors."""
    return subprocess.Popen(
        command,
        stdin=stdin,
        stdout=output,
        stderr=errors,
        cwd=folder,
        env=environment,
        preexec_fn=_enable_ctrl_c,  # noqa: PLW1509 (it only sets a signal)
    )


def _enable_ctrl_c() -> None:
    """Restore the default action of SIGINT, as in a terminal.

    A test run in the background of a script ignores SIGINT, and its children inherit that.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
