"""Options of a job: mode, priority, approvals and the task that is sent at its end."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from handoff_queue.shared.types.json_values import StorableJson
from handoff_queue.shared.types.limits import Microusd
from handoff_queue.shared.types.message import Message


class Mode(StrEnum):
    """Who does a job, and who decides that."""

    AUTO = "auto"
    """One cheap call decides between one specialist and a team."""
    SINGLE = "single"
    """One specialist with its tools: no planner, no review, no synthesis."""
    PIPELINE = "pipeline"
    """The steps of a workflow file: no planner."""
    TEAM = "team"
    """A planner makes a DAG of steps, which is run as it is."""
    ADAPTIVE = "adaptive"
    """A team whose plan is looked at again whenever results come in: steps are added, changed
    or dropped.
    """


class Priority(StrEnum):
    """The class of a job's messages, in every queue: none of a class is taken while one of a
    class above it waits.
    """

    INTERACTIVE = "interactive"
    """Somebody waits for the answer."""
    BATCH = "batch"
    """Nobody does; it is done with what the others leave."""


MOST_WAIT_S = 30 * 24 * 3_600
"""A question that nobody answers for so long ends its job, whatever was asked for: what waits
is kept in Redis.
"""


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


MOST_NAME_CHARS = 255
"""Of a task or a queue: AMQP's longest short string, in bytes."""
DEFAULT_QUEUE = "celery"
"""The queue of a stock Celery worker."""
_Name = Annotated[str, StringConstraints(min_length=1, max_length=MOST_NAME_CHARS)]


class EndTask(Message):
    """The task, its queue and its own arguments. The end of the job is added when the task is sent."""

    task: _Name
    queue: _Name = DEFAULT_QUEUE
    args: tuple[StorableJson, ...] = ()
    kwargs: dict[str, StorableJson] = Field(default_factory=dict)
    is_told: bool = True
    """Whether the end of the job goes before `args`, as the result of a task goes to its callback.
    """
