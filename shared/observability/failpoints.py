"""Failpoints: named places in the code at which a process can be made to fail. `handoff chaos`
uses them to hit windows of microseconds that random kills never hit.

Failpoints are off unless HANDOFF_FAILPOINTS names a folder. A file in that folder arms the
point of the same name, and its content is the action:

- `kill`: this process gets SIGKILL
- `kill PID`: that process gets SIGKILL, for example Redis before a request or after its answer
- `stop`: this process gets SIGSTOP; another process must send SIGCONT
- `stop PID`: that process gets SIGSTOP
- `freeze SECONDS`: this thread sleeps for that time, and holds the interpreter lock
- `drop`: raise the client's error for a lost answer; only at points after a request
- `error`: raise a RuntimeError, as an internal error would

The first process that reaches the point renames the file to `POINT@PID`, so a point fires
once.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

FAILPOINTS = "HANDOFF_FAILPOINTS"
"""Name of the variable. A process reads it once, at its first failpoint."""
BEFORE, AFTER = "before", "after"

Answer = TypeVar("Answer")


@cache
def get_folder() -> Path | None:
    """Return the folder of armed points, or None outside a chaos run."""
    folder_name = os.environ.get(FAILPOINTS)
    if folder_name:
        return Path(folder_name)
    return None


def run_between(
    group: str, point: str, call: Callable[[], Answer], error_type: type[Exception]
) -> Answer:
    """Run `call` between the points `group.point.before` and `group.point.after`.

    Args:
        error_type: the client's exception for a lost answer.
    """
    if get_folder() is None:
        return call()
    if point:
        name = f"{group}.{point}"
    else:
        name = group
    reach(f"{name}.{BEFORE}")
    answer = call()
    reach(f"{name}.{AFTER}", error_type)
    return answer


def reach(point: str, error_type: type[Exception] | None = None) -> None:
    """Run the action of this point, if it is armed.

    Args:
        error_type: the client's exception for a lost answer; None at a point without an answer.

    Raises:
        AssertionError: the action is unknown, or is not possible at this point.
    """
    armed_in = get_folder()
    if armed_in is None:
        return
    fired_file = armed_in / f"{point}@{os.getpid()}"
    try:
        # read first: after the rename, the process that armed the point may remove the file
        order = (armed_in / point).read_text()
        (armed_in / point).rename(fired_file)
    except FileNotFoundError:
        return
    match order.split():
        case ["kill", *pids]:
            os.kill(int(pids[0]) if pids else os.getpid(), signal.SIGKILL)
        case ["stop", *pids]:
            os.kill(int(pids[0]) if pids else os.getpid(), signal.SIGSTOP)
        case ["freeze", seconds]:
            ctypes.PyDLL(None).usleep(int(float(seconds) * 1_000_000))
        case ["drop"] if error_type is not None:
            raise error_type(f"failpoint {point}: the answer is lost")
        case ["error"]:
            raise RuntimeError(f"failpoint {point}: an internal error")
        case other:
            raise AssertionError(f"{point} cannot {' '.join(other)}")
