"""Child processes of one machine. They are started, watched and restarted when they die, and they
end with their parent.

Each child has a thread that starts it and waits for it. This is necessary: the kernel's
parent-death signal (see `parent_death_guard.py`) is sent when the *thread* that started a child
ends. So a thread that outlives the child must start it.
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
from types import TracebackType
from typing import Self

from handoff_queue.shared.broker.readiness import READY_FILE
from handoff_queue.shared.local.fork_server import ForkedProcess, ForkServer
from handoff_queue.shared.local.parent_death_guard import guarded_command
from handoff_queue.shared.types.errors import UserError

MOST_RESTARTS = 5
RESTART_WINDOW_S = 60.0
"""A child that died more than `MOST_RESTARTS` times within this is broken, not unlucky."""
_FIRST_PAUSE_S = 0.1
_TAIL_CHARS = 1_500


class RestartLimiter:
    """Recent deaths of a child. Rare deaths over days do not add up."""

    def __init__(self, *, is_hunted: bool = False) -> None:
        """`is_hunted`: it is killed on purpose, and never too often."""
        self._is_hunted = is_hunted
        self._at: deque[float] = deque()

    @property
    def too_many(self) -> bool:
        """Return whether the child counts as broken after its last death."""
        return len(self._at) > MOST_RESTARTS and not self._is_hunted

    def one_more(self, now: float) -> int:
        """Record a death, and return the number of deaths within the window.

        Args:
            now: seconds of a monotonic clock.
        """
        self._at.append(now)
        while self._at[0] <= now - RESTART_WINDOW_S:
            self._at.popleft()
        return len(self._at)


@dataclass(frozen=True)
class ChildSpec:
    """What to run, and how to tell that it is ready."""

    name: str
    command: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to this process's own."""
    is_ready: Callable[[], bool] | None = None
    """None: it is ready once it has touched its ready file (`shared.broker.readiness` does it
    for Celery workers).
    """
    restart: bool = True
    is_hunted: bool = False
    """It is killed on purpose: started again at once, however often it dies."""
    hopeless: int | None = None
    """The exit code that says that another start would end alike."""
    ends_last: bool = False
    """The others need it until they have ended: the Redis that draining workers hand their
    messages back to.
    """


class Processes:
    """`with Processes(folder) as processes: processes.start(spec); processes.wait_until_ready()`.

    Logs are `folder/logs/NAME.log`, standard output and error together.
    """

    def __init__(self, folder: Path, nursery: ForkServer | None = None) -> None:
        """Supervise children whose files are in `folder`.

        Args:
            nursery: the fork server for commands that can be forked; other commands are started
                as new processes.
        """
        self._folder = folder
        self._nursery = nursery
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        (folder / "ready").mkdir(exist_ok=True)
        self._children: dict[str, _Child] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self, spec: ChildSpec) -> None:
        """Start a child and return at once; a name may be taken once."""
        if spec.name in self._children:
            raise ValueError(f"a child named {spec.name} runs already")
        child = _Child(
            spec,
            self._folder / "logs" / f"{spec.name}.log",
            self._folder / "ready" / spec.name,
            self._nursery,
        )
        self._children[spec.name] = child
        child.start()

    def wait_until_ready(self, timeout_s: float = 60.0) -> None:
        """Return when every child is ready.

        Raises:
            UserError: one has given up, or is not ready in time; with the end of its log.
        """
        until = time.monotonic() + timeout_s
        for child in self._children.values():
            while not child.is_ready():
                if child.given_up.wait(0.05):
                    raise UserError(f"{child.spec.name} does not start:\n{child.tail()}")
                if time.monotonic() > until:
                    raise UserError(
                        f"{child.spec.name} was not ready within {timeout_s:.0f} s:\n{child.tail()}"
                    )

    def pids(self) -> dict[str, int]:
        """The process of each child that runs now."""
        pids: dict[str, int] = {}
        for name, child in self._children.items():
            if (pid := child.pid) is not None:
                pids[name] = pid
        return pids

    def ever(self) -> dict[int, str]:
        """Return every process so far, also ended ones: pid -> name."""
        names: dict[int, str] = {}
        for name, child in self._children.items():
            for pid in child.pids():
                names[pid] = name
        return names

    def is_ready(self, name: str) -> bool:
        """Return whether this child runs and takes work."""
        return self._children[name].is_ready()

    def broken(self) -> dict[str, str]:
        """The end of the log of each child that has been given up."""
        by_name: dict[str, str] = {}
        for name, child in self._children.items():
            if child.given_up.is_set():
                by_name[name] = child.tail()
        return by_name

    def log_of(self, name: str) -> Path:
        return self._children[name].log

    def stop(self, grace_s: float = 10.0) -> None:
        """Ask every child to end, and kill the rest after the grace. No child is left when this
        returns.
        """
        for last in (False, True):
            _end(
                [child for child in self._children.values() if child.spec.ends_last is last],
                grace_s,
            )
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
    """One child and its restarts."""

    def __init__(
        self, spec: ChildSpec, log: Path, ready_file: Path, nursery: ForkServer | None
    ) -> None:
        super().__init__(name=f"child-{spec.name}", daemon=True)
        self.spec = spec
        self.log = log
        self.given_up = threading.Event()
        self._gone: list[int | None] = []
        self._ready_file = ready_file
        self._nursery = nursery
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None

    @property
    def pid(self) -> int | None:
        process = self._process
        if process is not None and process.returncode is None:
            return process.pid
        return None

    def pids(self) -> set[int]:
        """Return the pids of all processes of this child, also of ended ones."""
        last = None
        if self._process is not None:
            last = self._process.pid
        pids: set[int] = set()
        for pid in (*self._gone, last):
            if pid is not None:
                pids.add(pid)
        return pids

    def is_ready(self) -> bool:
        if self.pid is None:
            return False
        if self.spec.is_ready is not None:
            return self.spec.is_ready()
        return self._ready_file.exists()

    def tail(self) -> str:
        text = ""
        if self.log.exists():
            text = self.log.read_text(errors="replace")
        return text[-_TAIL_CHARS:].strip() or "(it wrote nothing)"

    def run(self) -> None:
        deaths = RestartLimiter(is_hunted=self.spec.is_hunted)
        while (process := self._begun()) is not None:
            exit_code = process.wait()
            self._gone.append(process.pid)
            if self._ending.is_set():
                return
            count = deaths.one_more(time.monotonic())
            if deaths.too_many or not self.spec.restart or exit_code == self.spec.hopeless:
                break
            if self._ending.wait(_FIRST_PAUSE_S * (1 if self.spec.is_hunted else 2 ** (count - 1))):
                return
        if not self._ending.is_set():
            self.given_up.set()

    def ask_to_end(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _begun(self) -> subprocess.Popen[bytes] | ForkedProcess | None:
        """None: it was asked to end before it began, or cannot begin, and its log says why."""
        try:
            return self._spawn()
        except Exception as error:  # noqa: BLE001 - whoever waits for it must hear of it, and nobody reads what a thread leaves behind
            with self.log.open("a") as log:
                log.write(f"it cannot be started: {type(error).__name__}: {error}\n")
            return None

    def _spawn(self) -> subprocess.Popen[bytes] | ForkedProcess | None:
        """None: it was asked to end before it began."""
        with self._lock, self.log.open("ab") as log:
            if self._ending.is_set():
                return None
            self._ready_file.unlink(missing_ok=True)
            environment = {**os.environ, **self.spec.environment, READY_FILE: str(self._ready_file)}
            if self._nursery is not None and self._nursery.can_fork(self.spec.command, environment):
                self._process = self._nursery.fork(
                    self.spec.command, environment, log.fileno(), leads_session=True
                )
            else:
                self._process = subprocess.Popen(
                    guarded_command(self.spec.command),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,  # Ctrl-C is for the parent to pass on
                )
            return self._process

    def _signal(self, number: signal.Signals) -> None:
        """To the child's whole group when it is killed, so that its own children go too."""
        with self._lock:
            self._ending.set()
            process = self._process
            if process is None or process.poll() is not None:
                return
            if number is signal.SIGKILL and (pid := process.pid) is not None:
                with suppress(
                    ProcessLookupError
                ):  # it ended by itself, and `run` has just been told
                    os.killpg(pid, number)
            else:
                process.send_signal(number)
