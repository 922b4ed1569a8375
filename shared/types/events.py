"""What can happen to a job, in the past tense. Small: ids, digests, figures, and words of our own; payloads are blobs.

Nothing that a model or a tool has written stands in an event: where its words matter, the event refers to the HandoffResult that holds
them (`supervisor.lifecycle.result_texts` reads them there). Of a plan alone, names and first words of tasks are here, for lists and Flower.

A journal is a list of these; nothing else is true about a job. Fields are only ever added, with a default, so that a newer version reads
what an older one wrote.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from handoff_queue.shared.types.approval_events import (
    ApprovalAsked,
    ApprovalEvent,
    ApprovalReminded,
    Approved,
    Rejected,
)
from handoff_queue.shared.types.dispute_events import Arbitrated, ConflictsFound, Judged
from handoff_queue.shared.types.errors import MalformedMessage
from handoff_queue.shared.types.fact_check import FactsChecked
from handoff_queue.shared.types.job_events import (
    DEFAULT_TENANT,
    CancelRequested,
    DecisionAsked,
    EndTaskTried,
    JobEnded,
    JobEvent,
    JobStatus,
    JobSubmitted,
    Parent,
    ParentTold,
    Quoted,
    RetryRequested,
    Routed,
    TakenUp,
    WebhookTried,
)
from handoff_queue.shared.types.message import NO_PAYLOAD_IN_ERRORS, problems_of
from handoff_queue.shared.types.step_events import (
    LAST,
    Abandoned,
    AnswerMethod,
    Child,
    ConditionsChecked,
    Counted,
    GatesChecked,
    HandoffFinished,
    HandoffIssued,
    NeedsResolved,
    PlanMade,
    PlanPatched,
    Reviewed,
    SecondChance,
    StepEvent,
    StepOutline,
    StepsAbandoned,
    StepsTriedAgain,
    Synthesised,
)

Event = JobEvent | StepEvent | ApprovalEvent
_adapter: TypeAdapter[Event] = TypeAdapter(
    Annotated[Event, Field(discriminator="type")], config=NO_PAYLOAD_IN_ERRORS
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event in its place in the journal."""

    version: int
    """1 for the first."""
    at: float
    """Unix time in seconds, by Redis's clock."""
    event: Event


def parse_event(text: str | bytes) -> Event:
    """Raises: MalformedMessage."""
    try:
        return _adapter.validate_json(text)
    except ValidationError as error:
        raise MalformedMessage(f"event: {problems_of(error)}") from error


__all__ = [
    "DEFAULT_TENANT",
    "LAST",
    "Abandoned",
    "AnswerMethod",
    "ApprovalAsked",
    "ApprovalEvent",
    "ApprovalReminded",
    "Approved",
    "Arbitrated",
    "CancelRequested",
    "Child",
    "ConditionsChecked",
    "ConflictsFound",
    "Counted",
    "DecisionAsked",
    "EndTaskTried",
    "Event",
    "FactsChecked",
    "GatesChecked",
    "HandoffFinished",
    "HandoffIssued",
    "JobEnded",
    "JobEvent",
    "JobStatus",
    "JobSubmitted",
    "Judged",
    "NeedsResolved",
    "Parent",
    "ParentTold",
    "PlanMade",
    "PlanPatched",
    "Quoted",
    "Recorded",
    "Rejected",
    "RetryRequested",
    "Reviewed",
    "Routed",
    "SecondChance",
    "StepEvent",
    "StepOutline",
    "StepsAbandoned",
    "StepsTriedAgain",
    "Synthesised",
    "TakenUp",
    "WebhookTried",
    "parse_event",
]
