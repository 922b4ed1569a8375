"""Texts of results for later steps and for the answer."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from handoff_queue.shared.text.words import count_of
from handoff_queue.shared.types.errors import MalformedMessage
from handoff_queue.shared.types.events import (
    Arbitrated,
    ConditionsChecked,
    Event,
    FactsChecked,
    GatesChecked,
    HandoffFinished,
    JobEnded,
    Judged,
    NeedsResolved,
    PlanMade,
    PlanPatched,
    Rejected,
    Reviewed,
    Routed,
    StepsAbandoned,
    Synthesised,
)
from handoff_queue.shared.types.facts import FactTable
from handoff_queue.shared.types.handoff import (
    BlobRef,
    Feedback,
    HandoffResult,
    ResultStatus,
    StopReason,
)
from handoff_queue.shared.types.ids import JobId, StepId, handoff_id
from handoff_queue.shared.types.names import FACT_GATE
from handoff_queue.shared.types.plan import Patch, Plan, Resolutions
from handoff_queue.shared.types.results import unreadable_result
from handoff_queue.shared.types.review import Conflicts, Rulings, Verdict
from handoff_queue.shared.types.step_events import FactCheck
from handoff_queue.supervisor.lifecycle.attempt_feedback import AttemptFeedback
from handoff_queue.supervisor.lifecycle.state import StepState
from handoff_queue.supervisor.text.markdown import title_of


def result_by_code(
    job_id: JobId, step_id: StepId, attempt: int, error: str, stop_reason: StopReason
) -> HandoffResult:
    """Return a failed result in place of a missing one, with the reason."""
    return HandoffResult(
        handoff_id=handoff_id(step_id, attempt),
        job_id=job_id,
        step_id=step_id,
        attempt=attempt,
        status=ResultStatus.FAILED,
        error=error,
        stop_reason=stop_reason,
    )


WHY_CHARS = 300
"""The longest reason that is quoted in a line. The whole text is in the result."""
STOPPED_BY = {
    StopReason.MAX_TURNS: "it reached its limit of turns",
    StopReason.MAX_TOKENS: "it reached its limit of tokens",
    StopReason.MAX_USD: "it reached its cost limit",
    StopReason.DEADLINE: "its time was over",
    StopReason.JOB_BUDGET: "the budget of the job was spent",
    StopReason.DAY_BUDGET: "the budget of the day was spent",
    StopReason.PARENT_BUDGET: "the budget of the parent job was spent",
    StopReason.REFUSED: "the model declined to answer",
    StopReason.INVALID_OUTPUT: "its answer did not have the required form",
    StopReason.MODEL_ERROR: "the model could not be called",
    StopReason.TOO_MANY_CLAIMS: "too many workers were lost while they ran it",
    StopReason.CANCELLED: "it was cancelled",
    StopReason.DEFECT: "it failed because of an internal error",
}
"""Stop reasons in words, for results without a text. All reasons except FINISHED."""
UNEXPLAINED = "the specialist calls its result partial and names no gap"
TRY_AGAIN = "Try again."
BY_CODE = "code, which takes no excuse"
MOST_TOLD = 20
"""Wrong statements of a fact-check that are reported: as many as one attempt can correct."""
MOST_LINE_CHARS = 500
UNPROVEN = "[no source]"
"""Mark in an answer after a statement whose claim has no source that could be checked."""
HELPED = (
    "Step {helper} was added to answer your question: its result is in your context. "
    "If it does not help, do as much as you can without it."
)
BRING_UP_TO_DATE = (
    "A step that you depend on was done again: its new result is in your context. "
    "Update your result."
)


def sources_of_words(event: Event) -> tuple[BlobRef, ...]:
    """Return the HandoffResults or the user's note with the texts of an event; empty if the event
    is complete.
    """
    ref: BlobRef | None = None
    match event:
        case StepsAbandoned():
            return tuple(item.result for item in event.steps)
        case ConditionsChecked():
            return tuple(item.result for item in (*event.skipped, *event.undecided))
        case PlanMade():
            ref = event.degraded or event.noted
        case JobEnded():
            ref = event.because
        case Rejected():
            ref = event.note
        case PlanPatched() | NeedsResolved() | Judged() | GatesChecked():
            ref = event.result
        case (
            HandoffFinished()
            | Routed()
            | Arbitrated()
            | Reviewed()
            | Synthesised()
            | FactsChecked()
        ):
            if _has_words(event):
                ref = event.result
    if ref:
        return (ref,)
    return ()


def _has_words(
    event: HandoffFinished | Routed | Arbitrated | Reviewed | Synthesised | FactsChecked,
) -> bool:
    """Return whether the result of the event has a text that a reader must see."""
    match event:
        case HandoffFinished():
            return event.status is not ResultStatus.OK
        case Arbitrated():
            return event.problem is None
        case Reviewed():
            return event.decision is None or bool(event.steps or event.open_points)
        case FactsChecked():
            return bool(event.wrong or event.problem)
        case Routed() | Synthesised():
            return bool(event.problem)


def remarks_want(step: StepState) -> tuple[BlobRef, ...]:
    """Return the payloads that `ResultTexts.feedback` reads for the remarks on a step."""
    remarks: list[BlobRef] = []
    for remark in step.remarks:
        for ref in (remark.result, remark.ruling):
            if ref:
                remarks.append(ref)
    return tuple(remarks)


@dataclass(frozen=True, slots=True)
class ResultTexts:
    """Reads results from their payloads. A result that was not loaded raises KeyError, which
    is a defect.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    """Payloads by digest."""
    unreadable: set[str] = field(default_factory=set)
    """Digests of results that were asked for and cannot be read."""
    _results: dict[str, HandoffResult] = field(default_factory=dict)

    def result(self, ref: BlobRef) -> HandoffResult:
        """Return a result. A failed result stands in for a text that cannot be read, and its
        digest is noted.
        """
        if ref.digest not in self._results:
            text = self.texts[ref.digest]
            try:
                self._results[ref.digest] = HandoffResult.from_json(text)
            except MalformedMessage:
                self._results[ref.digest] = unreadable_result(text)
                self.unreadable.add(ref.digest)
        return self._results[ref.digest]

    def conflicts(self, ref: BlobRef) -> Conflicts:
        """Return the conflicts of a payload."""
        return Conflicts.from_json(self.texts[ref.digest])

    def facts(self, ref: BlobRef) -> FactTable:
        """Return the table of the user's facts."""
        return FactTable.from_json(self.texts[ref.digest])

    def vetoes(self, look: GatesChecked | None) -> tuple[str, ...]:
        """Return the findings of the gates, one sentence each."""
        if look and look.result:
            return self.objections(look.result)
        return ()

    def fact_check(self, ref: BlobRef) -> FactCheck | None:
        """Return the fact-checker's findings. None: the result holds no findings."""
        with suppress(MalformedMessage):
            return FactCheck.of(self.result(ref).output)
        return None

    def objections(self, ref: BlobRef) -> tuple[str, ...]:
        """Return why code or a fact-checker rejected an answer, one sentence each."""
        result = self.result(ref)
        if result.step_id != FACT_GATE:
            return tuple((result.error or "").splitlines())
        check = self.fact_check(ref)
        told = [
            f'"{_line(statement.statement)}" is wrong: {_line(statement.why)}'
            for statement in (check.wrong if check else ())
        ]
        more = (
            (f"And {count_of(rest, 'more statement')} like these.",)
            if (rest := len(told) - MOST_TOLD) > 0
            else ()
        )
        return (*told[:MOST_TOLD], *more)

    def why(self, ref: BlobRef | None) -> str | None:
        """Return why a result is not `ok`, in one line of at most WHY_CHARS characters.

        Return None for a result that is `ok`, and where there is no result.
        """
        if ref is None:
            return None
        reasons = _reasons(self.result(ref))
        if reasons:
            return title_of("; ".join(reasons), WHY_CHARS)
        return None

    def why_unchecked(self, look: FactsChecked) -> str | None:
        """Return the fact-checker's reason, in one line."""
        check = None
        if look.result:
            check = self.fact_check(look.result)
        reason = self.why(look.result) or (check.why if check else "")
        return " ".join(reason.split())[:WHY_CHARS] or None

    def plan(self, ref: BlobRef) -> Plan:
        return Plan.from_json(self.texts[ref.digest])

    def patch(self, ref: BlobRef) -> Patch | None:
        """Return the patch that the replanner proposes. None: its handoff failed."""
        result = self.result(ref)
        with suppress(MalformedMessage):
            if result.status is ResultStatus.OK:
                return Patch.of(result.output)
            return None
        return None

    def verdict(self, review: Reviewed) -> Verdict | None:
        """Return the verdict, or None if there is none."""
        if review.decision is None or review.result is None:
            return None
        if sources_of_words(review):
            return Verdict.of(self.result(review.result).output)
        return Verdict(verdict=review.decision)

    def feedback(self, step_id: StepId, remark: AttemptFeedback) -> Feedback:
        """Return a remark in the form that the step's next attempt gets."""
        return Feedback(
            author=remark.author, text=self._text(step_id, remark), previous=remark.previous
        )

    def _text(self, step_id: StepId, remark: AttemptFeedback) -> str:
        if remark.follows or remark.result is None:
            return BRING_UP_TO_DATE if remark.follows else TRY_AGAIN
        if remark.author == "gate":
            by = (
                "a fact-checker: correct each statement, or prove it"
                if self.result(remark.result).step_id == FACT_GATE
                else BY_CODE
            )
            return "\n".join([f"The answer was rejected by {by}:", *self.objections(remark.result)])
        if remark.author == "user":
            return self.texts[remark.result.digest]
        if remark.author == "supervisor":
            why = self.why(remark.result) or "it did not say why"
            return f"The previous attempt failed: {why}. Try another way."
        output = self.result(remark.result).output
        if remark.author == "planner":
            resolution = next(
                item for item in Resolutions.of(output).resolutions if item.step == step_id
            )
            return resolution.answer or HELPED.format(helper=remark.helper)
        problem = next(
            (item.problem for item in Verdict.of(output).revisions if item.step == step_id),
            BRING_UP_TO_DATE,
        )
        return f"{problem}{self._ruling(step_id, remark)}"

    def _ruling(self, step_id: StepId, remark: AttemptFeedback) -> str:
        """Return the judge's note on the remark."""
        if remark.ruling:
            rulings = Rulings.of(self.result(remark.ruling).output).rulings
        else:
            rulings = ()
        why = None
        for ruling in rulings:
            if ruling.step == step_id:
                why = ruling.why
                break
        if why is None:
            return ""
        return f"\n\nA judge has seen your result and its evidence, and agrees: {why}"


def _reasons(result: HandoffResult) -> list[str]:
    """Return the faults that the specialist reports or that code sees in its result."""
    needs = ""
    if result.needs:
        needs = f"needs: {result.needs}"
    is_question = result.status is ResultStatus.NEEDS_INPUT and needs
    if is_question:
        told = [needs]
    else:
        told = [result.error or "", needs]
    if any(told):
        reasons: list[str] = []
        for reason in told:
            if reason:
                reasons.append(reason)
        return reasons
    if result.stop_reason is not StopReason.FINISHED:
        return [STOPPED_BY[result.stop_reason]]
    if result.status is not ResultStatus.PARTIAL:
        return []
    unproven = 0
    for claim in result.claims:
        unproven += not claim.sources
    if unproven:
        verb = "have"
        if unproven == 1:
            verb = "has"
        claims = count_of(len(result.claims), "claim")
        return [f"{unproven} of its {claims} {verb} no source that could be checked"]
    return [UNEXPLAINED]


def _line(text: str) -> str:
    """Return a model's text as a part of one line."""
    line = " ".join(text.split())
    if len(line) <= MOST_LINE_CHARS:
        return line
    return f"{line[:MOST_LINE_CHARS]}…"
