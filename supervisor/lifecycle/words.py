"""What models said, where events and states only refer to it. Pure: whoever has the ledger loads the payloads first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.wire.conflicts import Conflicts
from shared.wire.events import (
    Event,
    GatesChecked,
    HandoffFinished,
    JobEnded,
    Judged,
    NeedsResolved,
    PlanMade,
    Rejected,
    Reviewed,
    Routed,
    StepsAbandoned,
    Synthesised,
)
from shared.wire.handoff import BlobRef, Feedback, HandoffResult, ResultStatus, StopReason
from shared.wire.ids import StepId
from shared.wire.resolutions import Resolutions
from shared.wire.verdict import Verdict
from supervisor.lifecycle.state import Remark

WHY_CHARS = 300
"""Of a reason that stands among other things; the whole of it is in its result."""
TRY_AGAIN = "Try again."
UNPROVEN = "[no source]"
"""Stands in an answer where a statement points to a claim without a source that could be checked."""
BRING_UP_TO_DATE = "A step that you depend on was done again: its new result is in your context. Bring yours up to date."


def said_by(event: Event) -> tuple[BlobRef, ...]:
    """The HandoffResults, or the user's note, whose words belong to an event; none: the event says all that there is to say."""
    ref: BlobRef | None = None
    match event:
        case StepsAbandoned():
            return tuple(item.result for item in event.steps)
        case HandoffFinished():
            ref = event.result if event.status is not ResultStatus.OK else None
        case Routed():
            ref = event.result if event.problem else None
        case PlanMade():
            ref = event.degraded
        case NeedsResolved():
            ref = event.result
        case Judged():
            ref = event.result
        case Reviewed():
            ref = event.result if event.decision is None or event.steps or event.open_points else None
        case Synthesised():
            ref = event.result if event.problem else None
        case GatesChecked():
            ref = event.result
        case JobEnded():
            ref = event.because
        case Rejected():
            ref = event.note
    return (ref,) if ref else ()


@dataclass(frozen=True, slots=True)
class Words:
    """Reads results out of their payloads. Asked for one that was not loaded, it raises KeyError: that is a defect."""

    texts: Mapping[str, str] = field(default_factory=dict)
    """Payloads by digest."""
    _results: dict[str, HandoffResult] = field(default_factory=dict)

    def result(self, ref: BlobRef) -> HandoffResult:
        if ref.digest not in self._results:
            self._results[ref.digest] = HandoffResult.from_json(self.texts[ref.digest])
        return self._results[ref.digest]

    def conflicts(self, ref: BlobRef) -> Conflicts:
        """A conflict ledger."""
        return Conflicts.from_json(self.texts[ref.digest])

    def why(self, ref: BlobRef | None) -> str | None:
        """What a result says of itself, in one line: `needs: ...`, or why it is not `ok`. None: nothing."""
        if ref is None:
            return None
        result = self.result(ref)
        said = f"needs: {result.needs}" if result.status is ResultStatus.NEEDS_INPUT and result.needs else result.error
        if not said and result.stop_reason is not StopReason.FINISHED:
            said = result.stop_reason.value
        return " ".join(said.split())[:WHY_CHARS] if said else None

    def verdict(self, review: Reviewed) -> Verdict | None:
        """None: there is none."""
        if review.decision is None or review.result is None:
            return None
        return Verdict.of(self.result(review.result).output) if said_by(review) else Verdict(verdict=review.decision)

    def feedback(self, step_id: StepId, remark: Remark) -> Feedback:
        """A remark as the step's next attempt is told it."""
        return Feedback(author=remark.author, text=self._text(step_id, remark), previous=remark.previous)

    def _text(self, step_id: StepId, remark: Remark) -> str:
        if remark.follows or remark.result is None:
            return BRING_UP_TO_DATE if remark.follows else TRY_AGAIN
        if remark.author == "gate":
            return f"The answer was turned down by code, which takes no excuse:\n{self.result(remark.result).error}"
        if remark.author == "user":
            return self.texts[remark.result.digest]
        if remark.author == "supervisor":
            return (
                f"The attempt before this one failed: {self.why(remark.result) or 'it did not say why'}. Do what can be done, another way."
            )
        output = self.result(remark.result).output
        if remark.author == "planner":
            return next(item.answer for item in Resolutions.of(output).resolutions if item.step == step_id and item.answer)
        return next((item.problem for item in Verdict.of(output).revisions if item.step == step_id), BRING_UP_TO_DATE)
