"""What was done to the system, and when: the words that killer, books and report share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

ARRIVES_WITHIN_S = 0.5
"""A call is written down when the server has read it, which may be after the death of who made it; its successor is not there so soon."""
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

    @property
    def until(self) -> float:
        """Until when calls of the target can turn up at the server that were sent before it was struck."""
        return self.at + self.lasts_s + ARRIVES_WITHIN_S

    def hits(self, process: str) -> bool:
        """Whether a call that this process has in the air may have to be made again."""
        return self.fault is not Fault.TWICE and self.target in (process, EVERYBODY)
