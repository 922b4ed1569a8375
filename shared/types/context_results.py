"""What a job knows before its first step: results of others, which its steps may depend on as on those of its own."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from handoff_queue.shared.types.handoff import BlobRef
from handoff_queue.shared.types.ids import JobIdField, NameField, StepId, StepIdField
from handoff_queue.shared.types.message import Message


class Given(Message):
    """One result, copied into the job's own payloads."""

    step: StepIdField
    """The step that made it, there; no step of the job has this id."""
    specialist: NameField
    title: str = ""
    result: BlobRef
    """A HandoffResult, as JSON."""
    is_answer: bool = False
    """It is what the others ended with: who gets the whole request gets this with it."""


class Earlier(Message):
    """The job that this one follows on."""

    job_id: JobIdField
    request: BlobRef
    """What was asked there."""


def answers_in(given: Sequence[Given]) -> tuple[StepId, ...]:
    """What a step without a planner is given."""
    return tuple(one.step for one in given if one.is_answer)


def own(depends_on: Sequence[StepId], given: Collection[StepId]) -> tuple[StepId, ...]:
    """Without those that are there from the beginning."""
    return tuple(step for step in depends_on if step not in given)
