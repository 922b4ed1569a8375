"""The process behind `shared.local.fork_server`: it imports modules, forks a child for each
request, and reports its end.

The child becomes a process of `python -m MODULE ARGUMENT...`: the same code as `__main__` and the
same arguments. It has the environment of the request, and its own exit code and signals. `ps` shows
this command until the process sets another title, as Celery does.

Forking is safe here: until the fork there is one thread, no connection and no client. A test of
the house rules checks that importing a module starts nothing.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module

from handoff_queue.shared.local.fast_exit import without_teardown
from handoff_queue.shared.local.parent_death_guard import PARENT_IS_GONE, PR_SET_PDEATHSIG


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """Request for a child, as JSON in a file."""

    module: str
    arguments: list[str]
    environment: dict[str, str]
    """All variables of the child."""
    folder: str
    """Working directory."""
    is_safe_path: bool
    """Python's -P: no modules from the working directory."""
    leads_session: bool


@dataclass(slots=True)
class ForkedChild:
    """A running child."""

    pid: int
    pidfd: int
    requester: socket.socket
    """Connection to the process that requested the child."""


class ForkServerProcess:
    """Forks on request, and kills the children of a requester that has gone."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._events = select.poll()
        self._events.register(control, select.POLLIN)
        self._by_pidfd: dict[int, ForkedChild] = {}
        self._by_requester: dict[int, ForkedChild] = {}

    def serve(self) -> ForkRequest | None:
        """Return the request in a child. In the fork server, return None when no process can
        send requests any more.
        """
        while True:
            for number, _ in self._events.poll():
                if number == self._control.fileno():
                    _, descriptors, _, _ = socket.recv_fds(self._control, 1, 5)
                    if not descriptors:
                        return None
                    request = self._fork(*descriptors)
                    if request is not None:
                        return request
                elif number in self._by_pidfd:
                    self._report_end(self._by_pidfd[number])
                elif number in self._by_requester:  # the requester has gone
                    self._events.unregister(number)
                    pidfd = self._by_requester[number].pidfd
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)

    def _fork(
        self, request_file: int, stdin: int, stdout: int, stderr: int, requester: int
    ) -> ForkRequest | None:
        """Fork a child for a request. Return the request in the child, and None in the server.

        Args:
            request_file: descriptor of the file with the request.
            requester: descriptor of the socket on which the requester gets the pid and the exit
                code.
        """
        with os.fdopen(request_file) as file:
            request = ForkRequest(**json.load(file))
        parent = os.getpid()
        connection = socket.socket(fileno=requester)
        try:
            pid = os.fork()
        except OSError:  # no more processes are allowed: the requester is told that the child ended
            connection.close()
            pid = None
        if pid == 0:
            _end_with(parent)
            self._close_in_child()
            _set_up_child(request, (stdin, stdout, stderr))
            with connection:
                if not _tell(connection, "pid", os.getpid()):
                    os._exit(PARENT_IS_GONE)  # cancelled
            return request
        for stream in (stdin, stdout, stderr):
            os.close(stream)
        if pid is None:
            return None
        child = ForkedChild(pid, os.pidfd_open(pid), connection)
        self._by_pidfd[child.pidfd] = self._by_requester[connection.fileno()] = child
        self._events.register(child.pidfd, select.POLLIN)
        self._events.register(connection, 0)  # the server needs only the end of the connection
        return None

    def _report_end(self, child: ForkedChild) -> None:
        """Tell the requester the exit code of a child that has ended, and forget the child."""
        _, status = os.waitpid(child.pid, 0)
        _tell(child.requester, "end", os.waitstatus_to_exitcode(status))
        connection = child.requester.fileno()
        del self._by_pidfd[child.pidfd]
        del self._by_requester[connection]
        self._events.unregister(child.pidfd)
        with suppress(KeyError):  # the requester went first
            self._events.unregister(connection)
        os.close(child.pidfd)
        child.requester.close()

    def _close_in_child(self) -> None:
        """Close the server's connections in a child."""
        self._control.close()
        for child in self._by_pidfd.values():
            os.close(child.pidfd)
            child.requester.close()


def _tell(requester: socket.socket, kind: str, number: int) -> bool:
    """Send a line: `pid` when the child has begun, or `end` with the exit code.

    Return False if the requester has gone.
    """
    try:
        requester.sendall(f"{kind} {number}\n".encode())
    except OSError:
        return False
    return True


def _end_with(parent: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # the parent died before prctl was set
        os._exit(PARENT_IS_GONE)


def _set_up_child(request: ForkRequest, streams: tuple[int, int, int]) -> None:
    """Set up everything that a new process has at its start."""
    for standard, stream in enumerate(streams):
        os.dup2(stream, standard)
        os.close(stream)
    if request.leads_session:
        os.setsid()
    _set_title(request)
    os.environ.clear()
    os.environ.update(request.environment)
    time.tzset()
    tempfile.tempdir = None  # an import may have set it
    with suppress(PermissionError):  # the descriptor may be inherited only
        os.chdir(request.folder)
    if not request.is_safe_path:
        sys.path.insert(0, request.folder)
    sys.argv = ["-m", *request.arguments]


def _set_title(request: ForkRequest) -> None:
    """Show the command of a child in `ps`, as of a new process. `ps` would show the command of
    the fork server.
    """
    from setproctitle import setproctitle  # a program without workers does not have it

    options = ["-P"] if request.is_safe_path else []
    setproctitle(" ".join([sys.executable, *options, "-m", request.module, *request.arguments]))


def main() -> None:
    """Run `python -m shared.local.fork_server_process SOCKET MODULE...`: the number of an
    inherited socket for requests, and the modules to import.

    `MODULE:FUNCTION` imports the module and calls the function.
    """
    # A shell lets its background processes ignore SIGINT. Here the signal is for a child.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    control = socket.socket(fileno=int(sys.argv[1]))
    gc.disable()  # it finds nothing during an import, and takes a fifth of the time
    for entry in sys.argv[2:]:
        module, _, function = entry.partition(":")
        module_of_command = import_module(module)
        if function:
            with suppress(Exception):  # the children meet the same error, and report it
                getattr(module_of_command, function)()
    from setproctitle import getproctitle

    getproctitle()  # it finds the memory for titles only while the environment is unchanged
    gc.enable()
    gc.freeze()  # the children share these pages until a write
    request = ForkServerProcess(control).serve()
    if request is not None:
        runpy.run_module(request.module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    with without_teardown():
        main()
