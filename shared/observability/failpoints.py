"""Named moments at which a process can be made to fail: for `handoff chaos`, in windows of
microseconds that random kills never hit.

Off unless HANDOFF_FAILPOINTS names a folder; then a point is armed by a file of its name in
it, which holds what is to happen there:

    kill            this process gets SIGKILL
    kill PID        that one does: the Redis that is about to be asked, or has just answered
    stop            this process gets SIGSTOP; somebody else must send SIGCONT
    stop PID        that one does
    freeze SECONDS  a call holds the interpreter lock for so long
    drop            what was asked of the server is done, and its answer is lost; only at points that come after something was sent
    defect          our own code fails, as nobody expected

The first process that comes by takes the file away, under the name `POINT@PID`: a point fires
once, whoever else passes it.
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
    """Where points are armed; None: nowhere, as in every process but those of a run under a killer."""
    named = os.environ.get(FAILPOINTS)
    return Path(named) if named else None


def around(what: str, which: str, call: Callable[[], Answer], lost: type[Exception]) -> Answer:
    """`call` between the points `what.which.before` and `what.which.after`. `lost`: what the
    client raises when an answer is.
    """
    if folder() is None:
        return call()
    name = f"{what}.{which}" if which else what
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
        ).read_text()  # first: who looks for what was taken may take it away at once
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
