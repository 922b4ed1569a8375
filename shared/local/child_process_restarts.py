"""Child processes of one machine. They are started, watched and restarted when they die, and
they end with their parent.

Each child has a thread that starts it and waits for it. This is necessary: the kernel's
parent-death signal (see `parent_death_guard.py`) is sent when the *thread* that started a
child ends. So a thread that outlives the child must start it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from handoff_queue.shared.broker.readiness import READY_FILE
from handoff_queue.shared.local.fork_server import ForkedProcess, ForkServer
from handoff_queue.shared.local.parent_death_guard import build_guarded_command
from handoff_queue.shared.types.errors import UserError

MAX_RESTARTS = 5
RESTART_WINDOW_S = 60.0
"""A child that dies more than `MAX_RESTARTS` times within these seconds is given up."""
_FIRST_PAUSE_S = 0.1
"""Seconds before the first restart. The pause doubles with each death in the window."""
_TAIL_CHARS = 1_500
"""Characters of the end of a log in an error message."""


class RestartLimiter:
    """Counts the deaths of a child in the last `RESTART_WINDOW_S` seconds."""

    def __init__(self, *, is_killed_on_purpose: bool = False) -> None:
        """Make a limiter without deaths.

        Args:
            is_killed_on_purpose: True for a child that is killed on purpose. Its deaths are
                never too many.
        """
        self._is_killed_on_purpose = is_killed_on_purpose
        self._death_times: deque[float] = deque()

    @property
    def is_broken(self) -> bool:
        """True if the child counts as broken after its last death."""
        return len(self._death_times) > MAX_RESTARTS and not self._is_killed_on_purpose

    def record_death(self, now: float) -> int:
        """Record a death, and return the number of deaths within the window.

        Args:
            now: seconds of a monotonic clock.
        """
        self._death_times.append(now)
        while self._death_times[0] <= now - RESTART_WINDOW_S:
            self._death_times.popleft()
        return len(self._death_times)


@dataclass(frozen=True)
class ChildSpec:
    """Command of a child, and its readiness check and restart rules."""

    name: str
    command: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables in addition to the variables of this process."""
    is_ready: Callable[[], bool] | None = None
    """Check of the running child. None: the child is ready when its ready file exists, which
    `shared.broker.readiness` creates for Celery workers.
    """
    restart: bool = True
    """False: the child is given up after its first death."""
    is_killed_on_purpose: bool = False
    """True if the child is killed on purpose: it is started again after 0.1 s, however often
    it dies.
    """
    fatal_exit_code: int | None = None
    """Exit code after which another start would fail in the same way. The child is given up."""
    ends_last: bool = False
    """True to stop the child after all others: draining workers still put their messages back
    into Redis.
    """


class Processes:
    """Child processes that end with the `with` block:
    `with Processes(folder) as processes: processes.start(spec); processes.wait_until_ready()`.

    Each child writes its standard output and standard error to `folder/logs/NAME.log`.
    """

    def __init__(self, folder: Path, fork_server: ForkServer | None = None) -> None:
        """Supervise children whose files are in `folder`.

        Args:
            fork_server: the fork server for commands that can be forked; other commands are started
                as new processes.
        """
        self._folder = folder
        self._fork_server = fork_server
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        (folder / "ready").mkdir(exist_ok=True)
        self._children: dict[str, _Child] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, spec: ChildSpec) -> None:
        """Start a child and return at once.

        Raises:
            ValueError: there is a child with this name.
        """
        if spec.name in self._children:
            raise ValueError(f"a child named {spec.name} runs already")
        child = _Child(
            spec,
            self._folder / "logs" / f"{spec.name}.log",
            self._folder / "ready" / spec.name,
            self._fork_server,
        )
        self._children[spec.name] = child
        child.start()

    def wait_until_ready(self, timeout_s: float = 60.0) -> None:
        """Return when every child is ready.

        Raises:
            UserError: a child was given up, or is not ready in time. The message has the end of its
                log.
        """
        until = time.monotonic() + timeout_s
        for child in self._children.values():
            while not child.is_ready():
                if child.given_up.wait(0.05):
                    raise UserError(
                        f"{child.spec.name} does not start: fix the error at the end of"
                        f" {child.log}:\n{child.read_log_tail()}"
                    )
                if time.monotonic() > until:
                    raise UserError(
                        f"{child.spec.name} was not ready within {timeout_s:.0f} s: start it again,"
                        f" or read its log, {child.log}:\n{child.read_log_tail()}"
                    )

    def get_pids(self) -> dict[str, int]:
        """Return the pid of each running child, by name."""
        pids: dict[str, int] = {}
        for name, child in self._children.items():
            pid = child.pid
            if pid is not None:
                pids[name] = pid
        return pids

    def get_names_by_pid(self) -> dict[int, str]:
        """Return the name of each process so far, also of ended processes, by pid."""
        names: dict[int, str] = {}
        for name, child in self._children.items():
            for pid in child.get_pids():
                names[pid] = name
        return names

    def is_ready(self, name: str) -> bool:
        """Return whether this child runs and takes work."""
        return self._children[name].is_ready()

    def read_log_ends_of_broken_children(self) -> dict[str, str]:
        """Return the end of the log of each child that was given up, by name."""
        log_ends: dict[str, str] = {}
        for name, child in self._children.items():
            if child.given_up.is_set():
                log_ends[name] = child.read_log_tail()
        return log_ends

    def get_log_path(self, name: str) -> Path:
        return self._children[name].log

    def stop(self, grace_s: float = 10.0) -> None:
        """Ask every child to end, and kill the children that still run after the grace.
        Children with `ends_last` are asked after the others have ended, with a second grace.
        No child runs when this returns.

        Args:
            grace_s: seconds.
        """
        first: list[_Child] = []
        last: list[_Child] = []
        for child in self._children.values():
            if child.spec.ends_last:
                last.append(child)
            else:
                first.append(child)
        _end(first, grace_s)
        _end(last, grace_s)
        self._children.clear()


def _end(children: list[_Child], grace_s: float) -> None:
    until = time.monotonic() + grace_s
    for child in children:
        child.ask_to_end()
    for child in children:
        child.join(max(0.0, until - time.monotonic()))
    for child in children:
        child.kill()
    for child in children:
        child.join()


class _Child(threading.Thread):
    """Thread that runs one child and restarts it."""

    def __init__(
        self, spec: ChildSpec, log: Path, ready_file: Path, fork_server: ForkServer | None
    ) -> None:
        super().__init__(name=f"child-{spec.name}", daemon=True)
        self.spec = spec
        self.log = log
        self.given_up = threading.Event()
        self._ended_pids: list[int | None] = []
        self._ready_file = ready_file
        self._fork_server = fork_server
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None

    @property
    def pid(self) -> int | None:
        process = self._process
        if process is not None and process.returncode is None:
            return process.pid
        return None

    def get_pids(self) -> set[int]:
        """Return the pids of all processes of this child, also of ended ones."""
        pids = set(self._ended_pids)
        if self._process is not None:
            pids.add(self._process.pid)
        return {pid for pid in pids if pid is not None}

    def is_ready(self) -> bool:
        if self.pid is None:
            return False
        if self.spec.is_ready is not None:
            return self.spec.is_ready()
        return self._ready_file.exists()

    def read_log_tail(self) -> str:
        text = ""
        if self.log.exists():
            text = self.log.read_text(errors="replace")
        return text[-_TAIL_CHARS:].strip() or "(it wrote nothing)"

    def run(self) -> None:
        """Run the child, and start it again after its death, until it was asked to end or dies too
        often.
        """
        deaths = RestartLimiter(is_killed_on_purpose=self.spec.is_killed_on_purpose)
        while True:
            process = self._try_to_start()
            if process is None:
                break
            exit_code = process.wait()
            self._ended_pids.append(process.pid)
            if self._ending.is_set():
                return
            count = deaths.record_death(time.monotonic())
            if deaths.is_broken or not self.spec.restart or exit_code == self.spec.fatal_exit_code:
                break
            pause_s = _FIRST_PAUSE_S
            if not self.spec.is_killed_on_purpose:
                pause_s *= 2 ** (count - 1)
            if self._ending.wait(pause_s):
                return
        if not self._ending.is_set():
            self.given_up.set()

    def ask_to_end(self) -> None:
        self._send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self._send_signal(signal.SIGKILL)

    def _try_to_start(self) -> subprocess.Popen[bytes] | ForkedProcess | None:
        """Start the child and return its process. Return None if it was asked to end before
        its start, or cannot start. The log then has the error.
        """
        try:
            return self._spawn()
        except Exception as error:  # noqa: BLE001 - `wait_until_ready` shows the end of the log
            with self.log.open("a") as log:
                log.write(f"it cannot be started: {type(error).__name__}: {error}\n")
            return None

    def _spawn(self) -> subprocess.Popen[bytes] | ForkedProcess | None:
        """Start the child and return its process, or None if it was asked to end before its
        start.
        """
        with self._lock, self.log.open("ab") as log:
            if self._ending.is_set():
                return None
            self._ready_file.unlink(missing_ok=True)
            environment = {**os.environ, **self.spec.environment, READY_FILE: str(self._ready_file)}
            if self._fork_server is not None and self._fork_server.can_fork(
                self.spec.command, environment
            ):
                self._process = self._fork_server.fork(
                    self.spec.command, environment, log.fileno(), leads_session=True
                )
            else:
                self._process = subprocess.Popen(
                    build_guarded_command(self.spec.command),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,  # Ctrl-C is for the parent to pass on
                )
            return self._process

    def _send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the child, and SIGKILL to its whole process group, which includes
        the child's own children. The child is not restarted after this.
        """
        with self._lock:
            self._ending.set()
            process = self._process
            if process is None or process.poll() is not None:
                return
            if number is signal.SIGKILL and process.pid is not None:
                with suppress(ProcessLookupError):  # the child has ended by itself in the meantime
                    os.killpg(process.pid, number)
            else:
                process.send_signal(number)
