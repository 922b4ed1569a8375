"""Python processes that start in milliseconds: forked from one that has imported everything
already (`forking.py`). Linux only.

Importing Celery, the model's SDK and pydantic costs seconds of processor time; four processes
on two cores would take them one after the
other. What is forked is a process like any other: its own pid, environment, folder, session,
signals and exit code.
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
from types import TracebackType
from typing import Self

from handoff_queue.shared.local.fork_server_child import ForkRequest
from handoff_queue.shared.local.parent_death_guard import guarded_command

_READ_ONCE = (
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
"""Beginnings of variables that the interpreter or a library reads while it is imported: a
child that needs others is not for a fork.
"""


def can_be() -> bool:
    """Whether this Python, this kernel and this sandbox have what forking on order takes: some
    builds and seccomp profiles do not.
    """
    try:
        for descriptor in (os.memfd_create("order"), os.pidfd_open(os.getpid())):
            os.close(descriptor)
    except (AttributeError, OSError):
        return False
    return sys.platform == "linux"


class ForkedProcess:
    """A child: as much of `subprocess.Popen` as our parents need. Any thread may use it."""

    def __init__(self, nursery: socket.socket) -> None:
        self.returncode: int | None = None
        self._pid: int | None = None
        self._nursery = nursery
        self._heard = b""
        self._lock = threading.Lock()
        weakref.finalize(self, nursery.close)  # the nursery kills what nobody holds any more

    @property
    def pid(self) -> int | None:
        """None: it has not begun, or ended before it did."""
        self.poll()
        return self._pid

    def begun(self) -> int:
        """Its pid, as soon as it has one.

        Raises:
            ChildProcessError: it never will.
        """
        while self._pid is None and self.returncode is None:
            self._listen(None)
        if self._pid is None:
            raise ChildProcessError("it was not forked")
        return self._pid

    def poll(self) -> int | None:
        """Its exit code, or None while it runs."""
        while self.returncode is None and self._listen(0.0):
            pass
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises: subprocess.TimeoutExpired."""
        until = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            left = None if until is None else max(0.0, until - time.monotonic())
            if not self._listen(left) and left == 0.0:
                raise subprocess.TimeoutExpired("a forked process", timeout or 0.0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """One that has not begun yet never does."""
        if self.poll() is not None:
            return
        if self._pid is None:
            self._nursery.shutdown(socket.SHUT_RDWR)
        else:
            with suppress(ProcessLookupError):
                os.kill(self._pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _listen(self, timeout_s: float | None) -> bool:
        """Take in what the nursery has said, if it says something within this time. Several
        threads may wait.
        """
        poll = select.poll()
        poll.register(self._nursery, select.POLLIN)
        if not poll.poll(None if timeout_s is None else timeout_s * 1_000):
            return False
        with self._lock:
            if self.returncode is not None:
                return True
            with suppress(BlockingIOError):  # another thread has taken it
                heard = self._nursery.recv(100, socket.MSG_DONTWAIT)
                *lines, self._heard = (self._heard + heard).split(b"\n")
                for what, number in (line.split() for line in lines):
                    if what == b"pid":
                        self._pid = int(number)
                    else:
                        self.returncode = int(number)
                if (
                    not heard and self.returncode is None
                ):  # the nursery died, and its children with it
                    self.returncode = -signal.SIGKILL
        return True


class ForkServer:
    """`with Nursery(modules) as nursery:` returns at once; what is ordered meanwhile is forked
    when all is imported.

    The thread that enters must live as long as the nursery (see `leash.py`); any may order.
    Its children end with it.
    """

    def __init__(
        self, modules: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        """`environment`: its own, this process's if none is given; what a child may have of it
        is the child's alone to say.
        """
        self._modules = modules
        self._environment = dict(os.environ if environment is None else environment)

    def __enter__(self) -> Self:
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                guarded_command(
                    [
                        sys.executable,
                        "-P",
                        "-m",
                        "handoff_queue.shared.local.fork_server_child",
                        str(theirs.fileno()),
                        *self._modules,
                    ]
                ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # what is wrong with a module, those who need it say themselves
                stderr=subprocess.DEVNULL,
                env=self._environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for the parent to pass on
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._orders.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def can_fork(self, command: Sequence[str], environment: Mapping[str, str]) -> bool:
        """Whether a fork would be the same as a process of its own: `python [-P] -m MODULE
        ...`, with nothing that is read once.
        """
        return (
            _module_of(command) is not None
            and _read_once(environment) == _read_once(self._environment)
            and self._process.poll() is None
        )

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
        """`environment`: all of it. `output`, `errors`, `stdin`: file descriptors; errors go
        to the output and nothing comes in, where none is named. `folder`: where it runs, if
        not here.

        Raises:
            ValueError: this is not one that can be forked.
        """
        if (place := _module_of(command)) is None:
            raise ValueError(f"not `python -m MODULE`: {command}")
        where = str(folder or Path.cwd())
        order = ForkRequest(
            command[place],
            list(command[place + 1 :]),
            dict(environment),
            where,
            "-P" in command[:place],
            leads_session,
        )
        ours, theirs = socket.socketpair()
        with (
            os.fdopen(os.memfd_create("order"), "w+b") as written,
            Path(os.devnull).open("rb") as nothing,
            theirs,
        ):
            written.write(json.dumps(asdict(order)).encode())
            written.seek(0)  # in memory: an environment holds secrets
            streams = (
                nothing.fileno() if stdin is None else stdin,
                output,
                output if errors is None else errors,
            )
            with suppress(
                BrokenPipeError, ConnectionResetError
            ):  # it has just died, as `ForkedProcess` says then
                socket.send_fds(self._orders, [b"!"], [written.fileno(), *streams, theirs.fileno()])
        return ForkedProcess(ours)


def _module_of(command: Sequence[str]) -> int | None:
    """Where in the command the module stands that is run."""
    for options in (["-m"], ["-P", "-m"]):
        place = 1 + len(options)
        if list(command[:place]) == [sys.executable, *options] and len(command) > place:
            return place
    return None


def _read_once(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_READ_ONCE)}
