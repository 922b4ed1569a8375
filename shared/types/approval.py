"""What a person may have a say in before a job goes on, and what becomes of a job that nobody answers."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from handoff_queue.shared.types.limits import Microusd
from handoff_queue.shared.types.message import Message

MOST_WAIT_S = 30 * 24 * 3_600
"""A question that nobody answers for so long ends its job, whatever was asked for: what waits is kept in Redis."""


class ApprovalOf(StrEnum):
    """What a job waits for an approval of."""

    PLAN = "plan"
    """Before its first step is handed over."""
    RESEARCH = "research"
    """When all steps are settled, before review and synthesis."""
    ANSWER = "answer"
    """Before it leaves."""
    COST = "cost"
    """Before more is begun than what is already under way."""
    STEP = "step"
    """Before steps begin that say `approve`, or that act in a job with an answer to approve."""
    FAILURE = "failure"
    """Before the job goes on without a step that failed and whose plan says `ask`."""


class OnTimeout(StrEnum):
    """What becomes of a job whose question nobody has answered in time."""

    GO_ON = "go-on"
    """As if it had been approved."""
    STOP = "stop"
    """It is cancelled."""
    REMIND = "remind"
    """Its user is told again, each time after twice as long, and it waits on."""


class Approvals(Message):
    """What of a job is to be approved of."""

    what: tuple[ApprovalOf, ...] = ()
    above_microusd: Microusd | None = None
    """The cost is to be approved of once it is more than this."""
    timeout_s: int | None = Field(default=None, ge=1, le=MOST_WAIT_S)
    """How long a question stands. None: as long as one may."""
    on_timeout: OnTimeout = OnTimeout.STOP

    @property
    def are_wanted(self) -> bool:
        """Whether the user asked for any question."""
        return bool(self.what) or self.above_microusd is not None

    @property
    def wait_s(self) -> int:
        """The longest that the job waits for one answer."""
        return (
            MOST_WAIT_S
            if self.timeout_s is None or self.on_timeout is OnTimeout.REMIND
            else self.timeout_s
        )


NOBODY_THERE = Approvals(timeout_s=1, on_timeout=OnTimeout.GO_ON)
"""Where nobody could be asked: what a plan would ask is taken as approved."""
