"""Runs a command that cannot outlive its parent: `python parent_death_guard.py PARENT_PID
COMMAND...`. The command ends also when the parent is killed with SIGKILL.

This file is started by path and imports nothing of the project, so it starts in a few
milliseconds. On Linux the kernel ends the command, and the command replaces this process. On
other systems this process stays, and watches its parent and the command.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1
"""Option of prctl, from linux/prctl.h. The kernel takes the *thread* that started this process
as its parent, so that thread must live as long as the command (see `child_process_restarts.py`).
"""
CHECK_EVERY_S = 0.5
PARENT_IS_GONE = 75
"""Exit status of a guard without its parent: EX_TEMPFAIL of sysexits.h."""
NO_SUCH_COMMAND = 127
"""Exit status after a command that cannot be started, as in a shell."""


def build_guarded_command(command: list[str], parent_pid: int | None = None) -> list[str]:
    """Return the command line that runs `command` and ends it with the process `parent_pid`.

    Args:
        parent_pid: None for this process.
    """
    return [
        sys.executable,
        "-I",
        "-S",
        str(Path(__file__).resolve()),
        str(parent_pid or os.getpid()),
        *command,
    ]


def main(arguments: list[str]) -> int:
    """Replace this process by the command on Linux. On other systems, run the command as a
    child and return its exit status.
    """
    parent_pid, command = int(arguments[0]), arguments[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent_pid:  # the parent died before the call of prctl
            return PARENT_IS_GONE
        try:
            os.execvp(command[0], command)
        except OSError as error:
            sys.stderr.write(f"cannot start {command[0]}: {error.strerror}\n")
            return NO_SUCH_COMMAND
    return _watch(parent_pid, command)


def _watch(parent_pid: int, command: list[str]) -> int:
    """Run the command, pass signals on to it, and kill it when the parent has ended."""
    child = subprocess.Popen(command)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda signal_number, _frame: child.send_signal(signal_number))
    while os.getppid() == parent_pid:
        try:
            return child.wait(CHECK_EVERY_S)
        except subprocess.TimeoutExpired:
            continue
    child.kill()
    child.wait()
    return PARENT_IS_GONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
