"""Runs a command that cannot outlive its parent: `python parent_death_guard.py PARENT_PID
COMMAND...`. The command ends also when the parent is killed with SIGKILL.

This file is started by path and imports nothing of the project, so it starts in a few milliseconds.
On Linux the kernel ends the command, and the command replaces this process. On other systems this
process stays, and watches its parent and the command.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1
"""linux/prctl.h. The parent is the *thread* that started us: it must live as long as the
command should (see `processes.py`).
"""
LOOK_EVERY_S = 0.5
PARENT_IS_GONE = 75
"""Exit status: sysexits.h, EX_TEMPFAIL."""

NO_SUCH_COMMAND = 127
"""Exit status, as a shell's."""


def guarded_command(command: list[str], parent_pid: int | None = None) -> list[str]:
    """The command line that runs `command` so that it dies with `parent_pid` (this process)."""
    return [
        sys.executable,
        "-I",
        "-S",
        str(Path(__file__).resolve()),
        str(parent_pid or os.getpid()),
        *command,
    ]


def main(arguments: list[str]) -> int:
    """Become the command, or stay and watch over it."""
    parent_pid, command = int(arguments[0]), arguments[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent_pid:  # it died before prctl could take notice
            return PARENT_IS_GONE
        try:
            os.execvp(command[0], command)
        except OSError as error:
            sys.stderr.write(f"cannot start {command[0]}: {error.strerror}\n")
            return NO_SUCH_COMMAND
    return _watch(parent_pid, command)


def _watch(parent_pid: int, command: list[str]) -> int:
    child = subprocess.Popen(command)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda received, _frame: child.send_signal(received))
    while os.getppid() == parent_pid:
        try:
            return child.wait(LOOK_EVERY_S)
        except subprocess.TimeoutExpired:
            continue
    child.kill()
    child.wait()
    return PARENT_IS_GONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
