"""Texts of results for later steps and for the answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from pydantic import JsonValue

from handoff_queue.shared.text.word_forms import format_count
from handoff_queue.shared.types.citation_markers import split_claim_ids
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
    Synthesized,
    UserMessageSent,
)
from handoff_queue.shared.types.gates import FactTable
from handoff_queue.shared.types.handoff import (
    BlobRef,
    Feedback,
    HandoffResult,
    ResultStatus,
    StopReason,
    build_unreadable_result,
)
from handoff_queue.shared.types.ids import JobId, StepId, build_handoff_id
from handoff_queue.shared.types.plan import Patch, Plan, Resolutions
from handoff_queue.shared.types.review import Conflicts, Rulings, Verdict
from handoff_queue.shared.types.step_events import FactCheck
from handoff_queue.supervisor.lifecycle.state import AttemptFeedback, StepState
from handoff_queue.supervisor.text.markdown import cut_title

WHY_CHARS = 300
"""Most characters of a reason in a line. The whole text is in the result."""
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
    StopReason.INTERNAL_ERROR: "it failed because of an internal error",
}
"""Stop reasons in words, for results without a text. All reasons except FINISHED."""
UNEXPLAINED = "the specialist calls its result partial and names no gap"
TRY_AGAIN = "Try again."
BY_CODE = "code"
MAX_REPORTED_STATEMENTS = 20
"""Most wrong statements of a fact-check that are reported: as many as one attempt can correct."""
MAX_LINE_CHARS = 500
"""Most characters of one quoted text of a fact-checker."""
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


def build_result_by_code(
    job_id: JobId, step_id: StepId, attempt: int, error: str, stop_reason: StopReason
) -> HandoffResult:
    """Return a failed result that code makes for a step, with `error` as the reason."""
    return HandoffResult(
        handoff_id=build_handoff_id(step_id, attempt),
        job_id=job_id,
        step_id=step_id,
        attempt=attempt,
        status=ResultStatus.FAILED,
        error=error,
        stop_reason=stop_reason,
    )


def list_refs_with_texts(event: Event) -> tuple[BlobRef, ...]:
    """Return the HandoffResults, or the user's note, with the texts of an event; empty if the
    event has no text that a reader must see.
    """
    ref: BlobRef | None = None
    match event:
        case StepsAbandoned():
            return tuple(step.result for step in event.steps)
        case ConditionsChecked():
            return tuple(step.result for step in (*event.skipped, *event.undecided))
        case PlanMade():
            ref = event.degraded or event.noted
        case JobEnded():
            ref = event.because
        case Rejected():
            ref = event.note
        case UserMessageSent():
            ref = event.text
        case PlanPatched() | NeedsResolved() | Judged() | GatesChecked():
            ref = event.result
        case (
            HandoffFinished()
            | Routed()
            | Arbitrated()
            | Reviewed()
            | Synthesized()
            | FactsChecked()
        ):
            if _has_words(event):
                ref = event.result
    if ref:
        return (ref,)
    return ()


def _has_words(
    event: HandoffFinished | Routed | Arbitrated | Reviewed | Synthesized | FactsChecked,
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
        case Routed() | Synthesized():
            return bool(event.problem)


def list_remark_payloads(step: StepState) -> tuple[BlobRef, ...]:
    """Return the payloads that `ResultTexts.build_feedback` reads for the remarks on a step."""
    payloads: list[BlobRef] = []
    for remark in step.remarks:
        for ref in (remark.result, remark.ruling):
            if ref:
                payloads.append(ref)
    return tuple(payloads)


def find_claim_ids(marker: re.Match[str]) -> list[str]:
    """Return the claim ids in a match of `MARKER`."""
    return split_claim_ids(marker[1])


def find_claim_ids_with_step(marker: re.Match[str]) -> list[str]:
    """Return the claim ids in a match of `MARKER`. Empty if no id names its step: such
    brackets are other text, because a result's markers are all qualified.
    """
    claim_ids = find_claim_ids(marker)
    for claim_id in claim_ids:
        if "." in claim_id:
            return claim_ids
    return []


@dataclass(frozen=True, slots=True)
class ResultTexts:
    """Results and their texts, parsed from payloads. A payload that was not loaded raises
    KeyError, which is a defect.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    """Payloads by digest."""
    unreadable: set[str] = field(default_factory=set)
    """Digests of the requested results that cannot be parsed."""
    _results: dict[str, HandoffResult] = field(default_factory=dict)

    def get_result(self, ref: BlobRef) -> HandoffResult:
        """Return a result. If its text cannot be parsed, return a failed result and add the
        digest to `unreadable`.
        """
        if ref.digest not in self._results:
            text = self.texts[ref.digest]
            try:
                self._results[ref.digest] = HandoffResult.from_json(text)
            except MalformedMessage:
                self._results[ref.digest] = build_unreadable_result(text)
                self.unreadable.add(ref.digest)
        return self._results[ref.digest]

    def get_results(self, refs: Iterable[BlobRef]) -> list[HandoffResult]:
        return [self.get_result(ref) for ref in refs]

    def get_conflicts(self, ref: BlobRef) -> Conflicts:
        """Return the conflicts of a payload."""
        return Conflicts.from_json(self.texts[ref.digest])

    def get_facts(self, ref: BlobRef) -> FactTable:
        """Return the table of the user's facts."""
        return FactTable.from_json(self.texts[ref.digest])

    def get_vetoes(self, gated: GatesChecked | None) -> tuple[str, ...]:
        """Return the findings of the gates, one sentence each."""
        if gated and gated.result:
            return self.get_objections(gated.result)
        return ()

    def get_fact_check(self, ref: BlobRef) -> FactCheck | None:
        """Return the fact-checker's findings. None: the result's output is not a FactCheck."""
        with suppress(MalformedMessage):
            return FactCheck.from_value(self.get_result(ref).output)
        return None

    def get_objections(self, ref: BlobRef) -> tuple[str, ...]:
        """Return why code or a fact-checker rejected an answer, one sentence each. Only the result
        of a fact-checker has an output. A worker may write the other fields as code does.
        """
        check = self.get_fact_check(ref)
        if check is None:
            return tuple((self.get_result(ref).error or "").splitlines())
        objections: list[str] = []
        for statement in check.wrong[:MAX_REPORTED_STATEMENTS]:
            objections.append(
                f'"{_cut_line(statement.statement)}" is wrong: {_cut_line(statement.why)}'
            )
        rest = len(check.wrong) - MAX_REPORTED_STATEMENTS
        if rest > 0:
            objections.append(f"And {format_count(rest, 'more statement')} like these.")
        return tuple(objections)

    def explain(self, ref: BlobRef | None) -> str | None:
        """Return why a result is not `ok`, in one line of at most WHY_CHARS characters. Return None
        if the result is `ok` or there is no result.
        """
        if ref is None:
            return None
        reasons = _list_reasons(self.get_result(ref))
        if reasons:
            return cut_title("; ".join(reasons), WHY_CHARS)
        return None

    def explain_missing_fact_check(self, event: FactsChecked) -> str | None:
        """Return why the fact-check failed, or else the fact-checker's own reason, in one line
        of at most WHY_CHARS characters; None if there is no reason.
        """
        reason = self.explain(event.result)
        if not reason and event.result:
            check = self.get_fact_check(event.result)
            reason = check.why if check else None
        if not reason:
            return None
        return " ".join(reason.split())[:WHY_CHARS] or None

    def plan(self, ref: BlobRef) -> Plan:
        return Plan.from_json(self.texts[ref.digest])

    def get_patch(self, ref: BlobRef) -> Patch | None:
        """Return the patch that the replanner proposes. None: its handoff is not `ok`, or its
        output is not a Patch.
        """
        result = self.get_result(ref)
        if result.status is not ResultStatus.OK:
            return None
        with suppress(MalformedMessage):
            return Patch.from_value(result.output)
        return None

    def get_verdict(self, review: Reviewed | None) -> Verdict | None:
        """Return the verdict of a review; None without a review, a decision or a result.

        Raises:
            MalformedMessage: the output of the assessor's result is not a Verdict.
        """
        if review is None or review.decision is None or review.result is None:
            return None
        if list_refs_with_texts(review):
            return Verdict.from_value(self.get_result(review.result).output)
        return Verdict(verdict=review.decision)

    def build_feedback(self, step_id: StepId, remark: AttemptFeedback) -> Feedback:
        """Return a remark in the form that the step's next attempt gets."""
        return Feedback(
            author=remark.author,
            text=self._get_remark_text(step_id, remark),
            previous=remark.previous,
        )

    def _get_remark_text(self, step_id: StepId, remark: AttemptFeedback) -> str:
        """Return the text of a remark.

        Raises:
            MalformedMessage: the output of the remark's result is not of its author's type.
        """
        if remark.follows:
            return BRING_UP_TO_DATE
        if remark.result is None:
            return TRY_AGAIN
        if remark.author == "gate":
            by = BY_CODE
            if self.get_fact_check(remark.result) is not None:
                by = "a fact-checker: correct each statement, or prove it"
            return "\n".join(
                [f"The answer was rejected by {by}:", *self.get_objections(remark.result)]
            )
        if remark.author == "user":
            return self.texts[remark.result.digest]
        if remark.author == "supervisor":
            why = self.explain(remark.result) or "it did not say why"
            return f"The previous attempt failed: {why}. Try another way."
        return self._get_role_text(step_id, remark, self.get_result(remark.result).output)

    def _get_role_text(self, step_id: StepId, remark: AttemptFeedback, output: JsonValue) -> str:
        """Return the planner's answer, or the assessor's revision with the judge's ruling."""
        if remark.author == "planner":
            answer = _find_answer(step_id, Resolutions.from_value(output))
            return answer or HELPED.format(helper=remark.helper)
        problem = _find_problem(step_id, Verdict.from_value(output))
        return f"{problem}{self._get_ruling(step_id, remark)}"

    def _get_ruling(self, step_id: StepId, remark: AttemptFeedback) -> str:
        """Return the judge's reason for agreeing with the remark; '' if the judge was not asked."""
        if remark.ruling is None:
            return ""
        for ruling in Rulings.from_value(self.get_result(remark.ruling).output).rulings:
            if ruling.step == step_id:
                return (
                    f"\n\nA judge has seen your result and its evidence, and agrees: {ruling.why}"
                )
        return ""


def _find_answer(step_id: StepId, resolutions: Resolutions) -> str | None:
    """Return the planner's answer to a step's question. None: a helper step answers it.

    Raises:
        LookupError: the planner has no resolution for the step.
    """
    for resolution in resolutions.resolutions:
        if resolution.step == step_id:
            return resolution.answer
    raise LookupError(f"the planner has no resolution for {step_id}")


def _find_problem(step_id: StepId, verdict: Verdict) -> str:
    """Return the fault that the assessor found in a step's result. A step that runs again only
    with its dependencies has no fault.
    """
    for revision in verdict.revisions:
        if revision.step == step_id:
            return revision.problem
    return BRING_UP_TO_DATE


def _list_reasons(result: HandoffResult) -> list[str]:
    """Return the reasons that the specialist reports, or else the reason that code sees in its
    result. Empty if there is none.
    """
    reasons: list[str] = []
    if result.error and result.status is not ResultStatus.NEEDS_INPUT:
        reasons.append(result.error)
    if result.needs:
        reasons.append(f"needs: {result.needs}")
    if reasons:
        return reasons
    if result.stop_reason is not StopReason.FINISHED:
        return [STOPPED_BY[result.stop_reason]]
    if result.status is not ResultStatus.PARTIAL:
        return []
    unproven_claims = [claim for claim in result.claims if not claim.sources]
    if unproven_claims:
        verb = "has" if len(unproven_claims) == 1 else "have"
        claims = format_count(len(result.claims), "claim")
        return [f"{len(unproven_claims)} of its {claims} {verb} no source that could be checked"]
    return [UNEXPLAINED]


def _cut_line(text: str) -> str:
    """Return a model's text on one line, cut to MAX_LINE_CHARS characters."""
    line = " ".join(text.split())
    if len(line) <= MAX_LINE_CHARS:
        return line
    return f"{line[:MAX_LINE_CHARS]}…"
