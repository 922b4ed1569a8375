"""A quick stand-in for `python` in a forked command: `[-P] -m MODULE` is forked too.

A forked `handoff run` starts a fork server, and `handoff up` starts workers. Such a process imports
for seconds in a new interpreter. The fork server of the tests has imported everything already.

`forked_python.py PYTHON SOCKET ARGUMENT...` asks the test process for its connection to that fork
server. It requests the process, passes signals on to the process, and ends like the process. If
the stand-in is killed, the fork server kills the process. `PYTHON` is the interpreter.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from types import FrameType

FORK_SERVER_PROCESS = "handoff_queue.shared.local.fork_server_process"


class Process:
    """The forked process of this command line."""

    def __init__(self, control: socket.socket, python: str, arguments: list[str]) -> None:
        """Request the process. `arguments`: `[-P] -m MODULE ARGUMENT...`."""
        is_safe_path = arguments[0] == "-P"
        module, *rest = arguments[1 + is_safe_path :]
        streams = [0, 1, 2]
        if module == FORK_SERVER_PROCESS:  # its first argument is a descriptor for requests
            streams[0], rest[0] = int(rest[0]), "0"
        request = {
            "module": "tests.forked_command",
            "arguments": [python, module, *rest],
            "environment": dict(os.environ),
            "folder": os.getcwd(),  # noqa: PTH109 (pathlib takes longer to import)
            "is_safe_path": is_safe_path,
            "leads_session": os.getsid(0) == os.getpid(),
        }
        self._pid: int | None = None
        self._early_signals: list[int] = []
        self._connection, child_end = socket.socketpair()
        with os.fdopen(os.memfd_create("request"), "w+b") as request_file, child_end:
            request_file.write(json.dumps(request).encode())
            request_file.seek(0)
            socket.send_fds(control, [b"!"], [request_file.fileno(), *streams, child_end.fileno()])

    def send_signal(self, number: int, _frame: FrameType | None = None) -> None:
        """Send a signal to the process, at the latest when its process id is known."""
        if self._pid is None:
            self._early_signals.append(number)
        else:
            os.kill(self._pid, number)

    def wait(self) -> int:
        """Return the exit code of the process. A signal counts as a negative number."""
        for line in self._connection.makefile():
            what, number = line.split()
            if what == "end":
                return int(number)
            self._pid = int(number)
            while self._early_signals:
                self.send_signal(self._early_signals.pop(0))
        return -signal.SIGKILL  # the fork server has ended, and its processes with it


def main() -> None:
    """Run `forked_python.py PYTHON SOCKET ARGUMENT...`."""
    python, address, *arguments = sys.argv[1:]
    with socket.socket(socket.AF_UNIX) as test_process:
        test_process.connect(address)
        _, (control,), _, _ = socket.recv_fds(test_process, 1, 1)
    process = Process(socket.socket(fileno=control), python, arguments)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, process.send_signal)
    exit_code = process.wait()
    if exit_code < 0:
        if exit_code != -signal.SIGKILL:  # its action cannot be set
            signal.signal(-exit_code, signal.SIG_DFL)
        os.kill(os.getpid(), -exit_code)
    os._exit(exit_code)


if __name__ == "__main__":
    main()
