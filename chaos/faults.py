"""What was done to the system, and when: the words that killer, books and report share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf

from handoff_queue.shared.store.redis.connection import INSIST_EVERY_S

ARRIVES_WITHIN_S = 0.5
"""A call is written down when the server has read it, which may be after the death of who made it; its successor is not there so soon."""
DIES_WITHIN_S = 0.05
"""What is said to Redis in the moment in which it is killed may still be answered; it is not there again so soon."""
EVERYBODY = "*"
"""The target of what hits all processes at once: Redis is gone, connections are cut."""


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
        """SIGKILL."""
        return self in (Fault.KILL_WORKER, Fault.KILL_SUPERVISOR, Fault.KILL_REDIS)


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault. `at`: Unix seconds."""

    fault: Fault
    target: str
    """The process's name, or EVERYBODY."""
    at: float
    point: str = ""
    """The failpoint, if it was at one."""
    lasts_s: float = 0.0
    """How long the target was stopped or frozen."""
    outage_s: float = 0.0
    """How long nothing could be said to Redis, the next try included."""

    @property
    def until(self) -> float:
        """Until when calls of the target can turn up at the server that were sent before it was struck."""
        return self.at + self.lasts_s + ARRIVES_WITHIN_S

    def hits(self, process: str) -> bool:
        """Whether a call that this process has in the air may have to be made again."""
        return self.fault is not Fault.TWICE and self.target in (process, EVERYBODY)


def with_outages(strikes: Iterable[Strike], answered_at: Iterable[float]) -> list[Strike]:
    """The same, with how long each held up whoever spoke to Redis. `answered_at`: when it was asked, and did answer."""
    asked = sorted(answered_at)

    def outage_s(strike: Strike) -> float:
        match strike.fault:
            case Fault.KILL_REDIS:
                return (
                    next((at for at in asked if at > strike.at + DIES_WITHIN_S), inf)
                    - strike.at
                    + INSIST_EVERY_S
                )
            case Fault.CUT:
                return INSIST_EVERY_S
            case _:
                return 0.0

    return [replace(strike, outage_s=outage_s(strike)) for strike in strikes]
