"""The `handoff` command as a user runs it: a separate process with a clean environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from handoff_queue.shared.local.fork_server import ForkedProcess
from tests import forked_processes
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
DOCUMENTS = ROOT / "examples" / "vector-databases"
BAD_INPUT, NO_REDIS = 2, 3
REQUEST = "Compare Qdrant, pgvector and Milvus for filtering and durable storage"


@dataclass(frozen=True)
class Handoff:
    """The command in its own folder, which also holds its private folders. A test can find every
    leftover file there.
    """

    folder: Path
    is_cold: bool = False
    """Started as users' shells do it, from nothing; the others are forked where that is the same.
    """

    def run(
        self, *arguments: str, stdin: str = "", timeout_s: float = 60.0, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        start = forked_processes.run_cold if self.is_cold else forked_processes.run
        return start(
            self.command(*arguments), self.environment(**environment), self.folder, stdin, timeout_s
        )

    @contextmanager
    def started(
        self, *arguments: str, **environment: str
    ) -> Iterator[subprocess.Popen[bytes] | ForkedProcess]:
        """The command while it runs; its output goes to the files `out` and `err`. Killed at
        the end, if it still runs.
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

    def wait_for(self, words: str, *, where: str = "err", timeout_s: float = 90.0) -> None:
        wait_until(
            lambda: words in self.read(where), timeout_s=timeout_s, what=f"{words!r} in {where}"
        )

    def read(self, where: str) -> str:
        return (self.folder / where).read_text()

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-P", "-m", "handoff_queue.supervisor.cli.main", *arguments]

    def environment(self, **more: str) -> dict[str, str]:
        own = {
            "TMPDIR": str(self.folder),
            "HANDOFF_CACHE_DIR": str(self.folder / "cache"),
            "PYTHONPATH": str(ROOT),
        }
        return {**os.environ, **own, **more}

    def left_behind(self) -> list[str]:
        """Processes that have to do with this folder: ours name it, on the command line or in
        the environment, or run in it.
        """
        folder = str(self.folder)
        return [
            command
            for pid, command in processes()
            if folder in command or self.has_started(pid) or _runs_in(pid, folder)
        ]

    def has_started(self, pid: int) -> bool:
        """Return whether our command started the process, judged by its environment."""
        return _inherits(pid, str(self.folder))


def said(done: subprocess.CompletedProcess[str], exit_code: int) -> str:
    """The one line, after checking that it is one."""
    lines = [
        line for line in done.stderr.splitlines() if not line.startswith("starting a private Redis")
    ]
    assert done.returncode == exit_code, done.stderr
    assert done.stdout == ""
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("handoff: ")
    return lines[0]


def interrupt(process: subprocess.Popen[bytes] | ForkedProcess) -> int:
    """Ctrl-C, and the exit code."""
    process.send_signal(signal.SIGINT)
    return process.wait(timeout=30)


def processes() -> Iterator[tuple[int, str]]:
    for place in Path("/proc").glob("[0-9]*"):
        try:
            command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if command and int(place.name) != os.getpid():
            yield int(place.name), command


def _runs_in(pid: int, folder: str) -> bool:
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink()) == folder
    except OSError:
        return False


def _inherits(pid: int, folder: str) -> bool:
    try:
        return f"TMPDIR={folder}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
