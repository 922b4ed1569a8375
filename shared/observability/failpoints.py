"""Failpoints: named moments at which a process can be made to fail. `handoff chaos` uses them to
hit windows of microseconds that random kills never hit.

Failpoints are off unless HANDOFF_FAILPOINTS names a folder. A file in that folder arms the point of
the same name, and its content is the action:

    kill            this process gets SIGKILL
    kill PID        that process gets it: the Redis that receives the next request, or answered the
        last one
    stop            this process gets SIGSTOP; another process must send SIGCONT
    stop PID        that process gets it
    freeze SECONDS  a call holds the interpreter lock for that time
    drop            the server did the work, and its answer is lost; only at points after a request
    defect          our own code raises an unexpected error

The first process that reaches the point renames the file to `POINT@PID`, so a point fires once.
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
"""The variable; read once in a process, at the first point that it passes."""
BEFORE, MIDDLE, AFTER = "before", "middle", "after"

Answer = TypeVar("Answer")


@cache
def folder() -> Path | None:
    """Return the folder of armed points, or None outside a chaos run."""
    named = os.environ.get(FAILPOINTS)
    if named:
        return Path(named)
    return None


def around(what: str, which: str, call: Callable[[], Answer], lost: type[Exception]) -> Answer:
    """Run `call` between the points `what.which.before` and `what.which.after`.

    Args:
        lost: the client's exception for a lost answer.
    """
    if folder() is None:
        return call()
    if which:
        name = f"{what}.{which}"
    else:
        name = what
    at(f"{name}.{BEFORE}")
    answer = call()
    at(f"{name}.{AFTER}", lost)
    return answer


def at(point: str, lost: type[Exception] | None = None) -> None:
    """Fail here if the point is armed."""
    armed_in = folder()
    if armed_in is None:
        return
    taken = armed_in / f"{point}@{os.getpid()}"
    try:
        order = (
            armed_in / point
            # the file goes first: a process that waits for the failpoint may remove the folder at once
        ).read_text()
        (armed_in / point).rename(taken)
    except FileNotFoundError:
        return
    match order.split():
        case ["kill", *pids]:
            os.kill(int(pids[0]) if pids else os.getpid(), signal.SIGKILL)
        case ["stop", *pids]:
            os.kill(int(pids[0]) if pids else os.getpid(), signal.SIGSTOP)
        case ["freeze", seconds]:
            ctypes.PyDLL(None).usleep(int(float(seconds) * 1_000_000))
        case ["drop"] if lost is not None:
            raise lost(f"failpoint {point}: the answer is lost")
        case ["defect"]:
            raise RuntimeError(f"failpoint {point}: a defect")
        case other:
            raise AssertionError(f"{point} cannot {' '.join(other)}")
