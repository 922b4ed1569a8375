"""Run the `handoff` command with its own folders, in a separate process or in the test process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import pytest

from handoff_queue.shared.local.fork_server import ForkedProcess
from handoff_queue.supervisor.cli.commands import ENTRIES, load_command
from handoff_queue.supervisor.cli.main import main
from tests import forked_processes
from tests.waiting import MAX_WAIT_S, wait_until

ROOT = Path(__file__).parents[2]
DOCUMENTS = ROOT / "examples" / "vector-databases"
BAD_INPUT, NO_REDIS = 2, 3
_NAMES_OTHER_JOBS = ("run", "submit", "quote", "schedule")
"""Commands with an option that names an earlier job, and without a JOB argument."""
REQUEST = "Compare Qdrant, pgvector and Milvus for filtering and durable storage"


def job_commands() -> list[str]:
    """Return the commands that have a JOB argument, in the order of `handoff help`."""
    names: list[str] = []
    for name in ENTRIES:
        metavars = [parameter.metavar or "" for parameter in load_command(name).params]
        if any("JOB" in metavar for metavar in metavars) and name not in _NAMES_OTHER_JOBS:
            names.append(name)
    return names


@dataclass(frozen=True)
class Handoff:
    """The `handoff` command with `folder` as its working, temporary and cache directory.

    A test finds every file that the command leaves there.
    """

    folder: Path
    is_cold: bool = False
    """Start a new interpreter, as a shell does. By default, the command runs in a forked process.
    """

    def run(
        self,
        *arguments: str,
        stdin: str = "",
        timeout_s: float = MAX_WAIT_S,
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        start = forked_processes.run_cold if self.is_cold else forked_processes.run
        return start(
            self.command(*arguments), self.environment(**environment), self.folder, stdin, timeout_s
        )

    @contextmanager
    def started(
        self, *arguments: str, **environment: str
    ) -> Iterator[subprocess.Popen[bytes] | ForkedProcess]:
        """Start the command, and kill it at the end of the block if it still runs.

        Its output goes to the files `out` and `err` in the folder.
        """
        start = forked_processes.start_cold if self.is_cold else forked_processes.start
        with (self.folder / "out").open("wb") as out, (self.folder / "err").open("wb") as err:
            process = start(
                self.command(*arguments),
                self.environment(**environment),
                self.folder,
                out.fileno(),
                err.fileno(),
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    @contextmanager
    def on_a_terminal(
        self, *arguments: str, output: int | None = None, **environment: str
    ) -> Iterator[tuple[subprocess.Popen[bytes] | ForkedProcess, int]]:
        """Start the command on a terminal. Yield its process, and the test's end of the terminal.

        Kill the process at the end of the block if it still runs. `output`: the descriptor of its
        stdout, by default the terminal.
        """
        test_end, command_end = os.openpty()
        process = forked_processes.start(
            self.command(*arguments),
            self.environment(**environment),
            self.folder,
            command_end if output is None else output,
            command_end,
            command_end,
        )
        os.close(command_end)
        try:
            yield process, test_end
        finally:
            process.kill()
            process.wait()
            os.close(test_end)

    def wait_for_text(self, text: str, *, file: str = "err", timeout_s: float = 90.0) -> None:
        wait_until(
            lambda: text in self.read(file), timeout_s=timeout_s, expected=f"{text!r} in {file}"
        )

    def read(self, file: str) -> str:
        return (self.folder / file).read_text()

    def command(self, *arguments: str) -> list[str]:
        """Return the command line. If the test proves no cold start, the processes that it starts
        are forked.
        """
        command = [sys.executable, "-P", "-m", "handoff_queue.supervisor.cli.main", *arguments]
        return command if self.is_cold else forked_processes.with_forked_children(command)

    def environment(self, **variables: str) -> dict[str, str]:
        folders = {
            "TMPDIR": str(self.folder),
            "HANDOFF_CACHE_DIR": str(self.folder / "cache"),
            "PYTHONPATH": str(ROOT),
        }
        return {**os.environ, **folders, **variables}

    def remaining_processes(self) -> list[str]:
        """Return the command lines of running processes that use this folder.

        The folder is in their command line or environment, or is their working directory.
        """
        folder = str(self.folder)
        return [
            command for pid, command in processes() if folder in command or self.has_started(pid)
        ]

    def has_started(self, pid: int) -> bool:
        """Return whether this command started the process: its TMPDIR is this folder, or its
        working directory is in this folder. A process that sets its title, such as Redis or a
        Celery worker, overwrites the environment that the system shows.
        """
        folder = str(self.folder)
        return _inherits(pid, folder) or _runs_in(pid, folder)


@dataclass(frozen=True)
class HandoffInProcess(Handoff):
    """The `handoff` command in the test process, for commands that start no process.

    It proves no behaviour of a new interpreter or of its exit.
    """

    capture: pytest.CaptureFixture[str] = field(kw_only=True)
    """The fixture `capfd`: the command writes to the descriptors 1 and 2."""

    def run(
        self,
        *arguments: str,
        stdin: str = "",
        timeout_s: float = MAX_WAIT_S,
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run the command, and restore all that it changes in this process.

        The timeout has no effect here: pytest ends a test that hangs.
        """
        command = ["handoff", *arguments]
        with (
            tempfile.TemporaryFile("w+") as stdin_file,
            pytest.MonkeyPatch.context() as changes,
            _process_environment(self.environment(**environment)),
            _restored_signals(),
        ):
            stdin_file.write(stdin)
            stdin_file.seek(0)
            changes.chdir(self.folder)
            changes.setattr(sys, "argv", command)
            changes.setattr(sys, "stdin", stdin_file)
            for stream in ("stdout", "stderr", "__stdout__", "__stderr__"):
                changes.setattr(sys, stream, getattr(sys, stream))
            changes.setattr(tempfile, "tempdir", None)
            changes.setattr(os, "execv", _refuse_to_become)
            exit_code = _exit_code_of_command()
            sys.stdout.flush()
            sys.stderr.flush()
        output, errors = self.capture.readouterr()
        return subprocess.CompletedProcess(command, exit_code, output, errors)


def _exit_code_of_command() -> int:
    """Run the command with the arguments of `sys.argv`, and return its exit code.

    `pytest.raises` would keep the frames of the command, and with them its connections to Redis,
    until a garbage collection. A later test would fail with the ResourceWarning.
    """
    exit_code = None
    try:
        main()
    except SystemExit as end:
        exit_code = end.code
    assert isinstance(exit_code, int), "the command returned without an exit code"
    return exit_code


def _refuse_to_become(path: str, _arguments: list[str]) -> NoReturn:
    """Raise instead of replacing the test process, as `handoff worker` does if it starts."""
    raise AssertionError(f"the command replaces its process by {path}")


@contextmanager
def _process_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Give the test process exactly these variables, and restore its own variables afterwards."""
    own_variables = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(own_variables)


@contextmanager
def _restored_signals() -> Iterator[None]:
    """Restore the handlers of the signals that a command handles."""
    handled = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = {number: signal.getsignal(number) for number in handled}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def error_line(completed: subprocess.CompletedProcess[str], exit_code: int) -> str:
    """Check that the command printed exactly one error line and no output. Return the line."""
    lines = [
        line
        for line in completed.stderr.splitlines()
        if not line.startswith("starting a private Redis")
    ]
    assert completed.returncode == exit_code, completed.stderr
    assert completed.stdout == ""
    assert len(lines) == 1, completed.stderr
    assert lines[0].startswith("handoff: ")
    return lines[0]


def interrupt(process: subprocess.Popen[bytes] | ForkedProcess) -> int:
    """Send Ctrl-C to the process, and return its exit code."""
    process.send_signal(signal.SIGINT)
    return process.wait(timeout=MAX_WAIT_S)


def processes() -> Iterator[tuple[int, str]]:
    """Yield the id and the command line of every other process of this machine."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (
                (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            )
        except OSError:
            continue
        if command and int(folder.name) != os.getpid():
            yield int(folder.name), command


def _runs_in(pid: int, folder: str) -> bool:
    try:
        return Path(f"/proc/{pid}/cwd").readlink().is_relative_to(folder)
    except OSError:
        return False


def _inherits(pid: int, folder: str) -> bool:
    try:
        return f"TMPDIR={folder}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
