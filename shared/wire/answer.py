"""The answer of a job, as it leaves."""

from __future__ import annotations

from pydantic import NonNegativeInt, PositiveInt

from shared.wire.events import AnswerMethod, JobStatus
from shared.wire.handoff import Citation
from shared.wire.ids import StepIdField
from shared.wire.json_values import StorableJson
from shared.wire.message import Message


class NumberedCitation(Message):
    """One source of the answer: `[n]` in its text."""

    n: PositiveInt
    claim: str
    """What the answer says on its strength."""
    citation: Citation
    step: StepIdField | None = None
    """The step that found it."""


class Gap(Message):
    """A part of the work that is not in the answer, or not whole."""

    step: StepIdField
    specialist: str
    why: str
    likely_microusd: NonNegativeInt | None = None
    """What doing it would likely cost, by what the job has cost so far. None: nothing is known to go by."""


class Answer(Message):
    """The answer, its sources, and what is to be said about it."""

    status: JobStatus
    text: str
    """Markdown; for a job with an answer schema the JSON text of `value`."""
    value: StorableJson = None
    """The answer of a job with an answer schema."""
    citations: tuple[NumberedCitation, ...] = ()
    gaps: tuple[Gap, ...] = ()
    to_finish_microusd: NonNegativeInt | None = None
    """The same for all of them, with what builds on them."""
    open_points: tuple[str, ...] = ()
    """What the reviewer still had to say when the last round was over."""
    notes: tuple[str, ...] = ()
    method: AnswerMethod = AnswerMethod.NONE
