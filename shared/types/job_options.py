"""Options of a job: mode, priority, approvals and the task that is sent at its end."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from handoff_queue.shared.types.json_values import StorableJson
from handoff_queue.shared.types.limits import Microusd
from handoff_queue.shared.types.message import Message, PublicMessage


class Mode(StrEnum):
    """Mode of a job's supervision."""

    AUTO = "auto"
    """A router decides with one cheap call between one specialist and a team."""
    SINGLE = "single"
    """One specialist with its tools: no planner, no review, no synthesis."""
    PIPELINE = "pipeline"
    """The steps of a workflow file: no planner."""
    TEAM = "team"
    """A planner makes a DAG of steps. The plan does not change."""
    ADAPTIVE = "adaptive"
    """A team whose replanner adds, changes or drops steps whenever results arrive."""


class Priority(StrEnum):
    """The class of a job's messages. In each queue, messages of a higher class come first."""

    INTERACTIVE = "interactive"
    """A user waits for the answer."""
    BATCH = "batch"
    """No user waits. The job uses the slots that interactive jobs leave free."""


MAX_WAIT_S = 30 * 24 * 3_600
"""Longest wait for an answer in seconds. It is bounded, because Redis keeps all waiting jobs
in memory.
"""


class ApprovalOf(StrEnum):
    """Subject that a person approves."""

    PLAN = "plan"
    """The plan, before its first step is issued."""
    RESEARCH = "research"
    """The results of all steps, before review and synthesis."""
    ANSWER = "answer"
    """The answer, before the job ends."""
    COST = "cost"
    """The cost so far, before new work begins."""
    STEP = "step"
    """Steps with `approve: true`, and steps with effects in a job whose answer needs approval."""
    FAILURE = "failure"
    """A failed step with `on_failure: ask`, before the job continues without it."""
    TOOLS = "tools"
    """A single call of a tool, if the policy of tools or the specialist's `ask` says so."""


_AWAITED = {
    ApprovalOf.STEP.value: "an approval of a step",
    ApprovalOf.FAILURE.value: "a decision about a failed step",
}


def describe_awaited_answer(subject: str) -> str:
    """Return the answer that a job waits for, in words.

    Args:
        subject: the subject of its question.
    """
    return _AWAITED.get(subject, f"an approval of its {subject}")


class OnTimeout(StrEnum):
    """Action after a question was not answered in time."""

    GO_ON = "go-on"
    """The question counts as approved."""
    STOP = "stop"
    """The job is cancelled."""
    REMIND = "remind"
    """The user gets reminders, each after twice the time of the one before, and the job waits."""


class Approvals(PublicMessage):
    """Subjects that a person approves in a job, and how long the job waits."""

    what: tuple[ApprovalOf, ...] = ()
    above_microusd: Microusd | None = None
    """A person must approve the cost above this amount."""
    timeout_s: int | None = Field(default=None, ge=1, le=MAX_WAIT_S)
    """Longest wait for an answer, or time until the first reminder, in seconds. None:
    `MAX_WAIT_S`.
    """
    on_timeout: OnTimeout = OnTimeout.STOP

    @property
    def are_wanted(self) -> bool:
        """Return whether the user requested any approval."""
        return bool(self.what) or self.above_microusd is not None

    @property
    def wait_s(self) -> int:
        """Return the longest wait for one answer in seconds, including reminders."""
        if self.timeout_s is None or self.on_timeout is OnTimeout.REMIND:
            return MAX_WAIT_S
        return self.timeout_s


APPROVE_AT_ONCE = Approvals(timeout_s=1, on_timeout=OnTimeout.GO_ON)
"""Approvals of a command without a terminal: every question counts as approved."""


MAX_NAME_CHARS = 255
"""Most characters of the name of a task or a queue: the longest short string of AMQP, in bytes."""
DEFAULT_QUEUE = "celery"
"""The queue of a stock Celery worker."""
_Name = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME_CHARS)]


class EndTask(Message):
    """A task of the host's Celery app, which the supervisor sends at the end of the job."""

    task: _Name
    queue: _Name = DEFAULT_QUEUE
    args: tuple[StorableJson, ...] = ()
    kwargs: dict[str, StorableJson] = Field(default_factory=dict)
    is_told: bool = True
    """True if the first argument is a description of the job's end, as a callback gets the
    result of its task.
    """
