"""Faults of a chaos run, and strikes: faults at a time on a process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf

from handoff_queue.shared.store.redis.connection import INSIST_EVERY_S

ARRIVES_WITHIN_S = 0.5
"""Seconds between the death of a caller and the record of its last call: the server may read the
call after the death. A replacement process needs longer to start.
"""
DIES_WITHIN_S = 0.05
"""Seconds in which Redis may still answer after its kill. It needs longer to restart."""
EVERYBODY = "*"
"""Target of a strike that hits all processes: Redis is killed, or connections are cut."""


class Fault(StrEnum):
    """A kind of fault."""

    KILL_WORKER = "worker killed"
    KILL_SUPERVISOR = "supervisor killed"
    KILL_REDIS = "Redis killed"
    STOP = "stopped past its lease"
    FREEZE = "frozen"
    CUT = "connections cut"
    DROP = "answer lost"
    TWICE = "messages delivered twice"
    END = "told to end"

    @property
    def is_kill(self) -> bool:
        """True if the fault is a SIGKILL."""
        return self in (Fault.KILL_WORKER, Fault.KILL_SUPERVISOR, Fault.KILL_REDIS)


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault on one process."""

    fault: Fault
    target: str
    """Name of the process, or EVERYBODY."""
    at: float
    """Unix seconds."""
    point: str = ""
    """Name of the failpoint. Empty if the fault was at none."""
    lasts_s: float = 0.0
    """Seconds for which the target was stopped or frozen."""
    outage_s: float = 0.0
    """Seconds for which Redis was unreachable, including the next try."""

    @property
    def until(self) -> float:
        """Return the time until which calls may arrive that the target sent before the strike."""
        return self.at + self.lasts_s + ARRIVES_WITHIN_S

    def hits(self, process: str) -> bool:
        """Return whether a call of this process in flight may have to be repeated."""
        return self.fault is not Fault.TWICE and self.target in (process, EVERYBODY)


def with_outages(strikes: Iterable[Strike], answered_at: Iterable[float]) -> list[Strike]:
    """Return the strikes with the time for which each made Redis unreachable.

    Args:
        answered_at: times at which Redis answered.
    """
    asked = sorted(answered_at)

    def outage_s(strike: Strike) -> float:
        match strike.fault:
            case Fault.KILL_REDIS:
                later = (at for at in asked if at > strike.at + DIES_WITHIN_S)
                return next(later, inf) - strike.at + INSIST_EVERY_S
            case Fault.CUT:
                return INSIST_EVERY_S
            case _:
                return 0.0

    return [replace(strike, outage_s=outage_s(strike)) for strike in strikes]
