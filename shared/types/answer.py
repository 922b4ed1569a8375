"""The answer of a job."""

from __future__ import annotations

from pydantic import NonNegativeInt, PositiveInt

from handoff_queue.shared.types.events import AnswerMethod, JobStatus
from handoff_queue.shared.types.handoff import Citation
from handoff_queue.shared.types.ids import StepIdField
from handoff_queue.shared.types.json_values import StorableJson
from handoff_queue.shared.types.message import Message


class NumberedCitation(Message):
    """A source of the answer: `[n]` in its text."""

    n: PositiveInt
    claim: str
    """Statement of the answer that the source supports."""
    citation: Citation
    step: StepIdField | None = None
    """The step that found it."""


class Gap(Message):
    """A part of the work that is missing or incomplete in the answer."""

    step: StepIdField
    specialist: str
    why: str
    likely_microusd: NonNegativeInt | None = None
    """The likely cost to fill the gap, estimated from the job's cost so far; None: no estimate."""


class Answer(Message):
    """The answer, its sources, its gaps and its notes."""

    status: JobStatus
    text: str
    """Markdown; for a job with an answer schema the JSON text of `value`."""
    value: StorableJson = None
    """The answer of a job with an answer schema."""
    citations: tuple[NumberedCitation, ...] = ()
    gaps: tuple[Gap, ...] = ()
    to_finish_microusd: NonNegativeInt | None = None
    """The likely cost to fill all gaps and to repeat the steps that depend on them."""
    open_points: tuple[str, ...] = ()
    """Remarks of the last review that did not lead to another round."""
    notes: tuple[str, ...] = ()
    method: AnswerMethod = AnswerMethod.NONE

    @property
    def content(self) -> StorableJson:
        """Return the value of a job with an answer schema, or else the text."""
        if self.value is None:
            return self.text
        return self.value
