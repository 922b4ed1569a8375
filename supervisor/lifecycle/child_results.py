"""The result of a child job for its parent: its answer as the result of the parent's handoff. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import JsonValue

from handoff_queue.shared.settings.settings import OFFLINE_MODEL
from handoff_queue.shared.types.answer import Answer
from handoff_queue.shared.types.citation_markers import MARKER, in_every_text
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.handoff import Claim, HandoffResult, ResultStatus, StopReason
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.usage import Usage
from handoff_queue.supervisor.lifecycle.answer import body_of, content_of, open_text, parts_of
from handoff_queue.supervisor.lifecycle.disputes import disputes_of, section
from handoff_queue.supervisor.lifecycle.gaps import gap_text, lacking
from handoff_queue.supervisor.lifecycle.result_texts import UNPROVEN, ResultTexts
from handoff_queue.supervisor.lifecycle.retry_reducer import answer_stands
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.lifecycle.teams import has_gaps_alone

MOST_CLAIMS = 9_999
"""Highest number of a result's claims."""
_STATUS = {JobStatus.OK: ResultStatus.OK, JobStatus.PARTIAL: ResultStatus.PARTIAL}


@dataclass(frozen=True, slots=True)
class ChildUsage:
    """Usage of a child job by its budget, which also counts calls that were cut off."""

    usage: Usage
    turns: int


def result_for_parent(
    state: JobState, words: ResultTexts, answer: Answer | None, used: ChildUsage, so_far: ChildUsage
) -> HandoffResult:
    """Return the result of an ended child.

    Its statements point to its claims, which keep their sources and take the name of the parent's
    step. If the child did not fill its gaps and the parent has its earlier answer, the result is a
    failure, so that the earlier answer stays.

    Args:
        words: texts of `parts_of(state)`, `words_wanted(state)` and the end's `because`.
        answer: None if there is no answer.
        used: usage for this handoff of the parent.
        so_far: usage of the whole child.
    """
    assert state.ended is not None
    assert state.submitted.parent is not None
    parent = state.submitted.parent
    step, _, attempt = parent.handoff_id.rpartition(".")
    is_new = answer is not None and not (answer_stands(state) and state.held.is_known_above)
    if is_new:
        status = _STATUS.get(state.ended.status, ResultStatus.FAILED)
    else:
        status = ResultStatus.FAILED
    if answer:
        output, claims = _said(state, words, answer, StepId(step))
    else:
        output, claims = (None, ())
    if status is not ResultStatus.FAILED and output is None:
        status = ResultStatus.FAILED
    if answer:
        parts = [words.result(ref) for ref in parts_of(state)]
    else:
        parts = []
    why = words.why(state.ended.because) or state.ended.reason or "it has no answer"
    if answer and output is None:
        why = "its answer is not in the form that the step asks for"
    error = None
    if status is ResultStatus.FAILED:
        error = f"its team {state.job_id}: {why}"
    if answer and answer.gaps and (status is ResultStatus.PARTIAL or not is_new):
        error = f"its team {state.job_id} lacks {lacking(answer.gaps)}"
    return HandoffResult(
        handoff_id=parent.handoff_id,
        job_id=parent.job_id,
        step_id=StepId(step),
        attempt=int(attempt),
        status=status,
        output=output if status is not ResultStatus.FAILED else None,
        claims=claims if status is not ResultStatus.FAILED else (),
        confidence=sum(part.confidence for part in parts) / len(parts) if parts else 0.0,
        usage=used.usage,
        turns=used.turns,
        stop_reason=_stop_reason(state, so_far),
        error=error[:500] if error else None,
        acted=any(step_state.acted for step_state in state.steps.values()) or None,
        to_finish_microusd=answer.to_finish_microusd if answer and has_gaps_alone(state) else None,
        model=OFFLINE_MODEL if OFFLINE_MODEL in state.models else next(iter(state.models), None),
    )


def _said(
    state: JobState, words: ResultTexts, answer: Answer, step: StepId
) -> tuple[JsonValue, tuple[Claim, ...]]:
    """Return the answer before its sources were numbered, and all its claims, cited ones first.

    The answer is None if the step asks for a form and the child has no answer in that form.
    """
    parts, disputes = [words.result(ref) for ref in parts_of(state)], disputes_of(state, words)
    content = content_of(state, words)
    output: JsonValue
    if content.is_form:
        output = parts[0].output
    elif state.submitted.answer_schema is not None:
        return None, ()
    else:
        body = body_of(state, parts)
        blocks = (
            f"{body}{section(disputes, body)}",
            gap_text(answer.gaps),
            open_text(answer.open_points),
        )
        output = "\n\n".join(block for block in blocks if block)
    all_claims = (
        *(dispute.conflict.claims for dispute in disputes),
        *(part.claims for part in parts),
    )
    known: dict[str, Claim] = {}
    for all_claim in all_claims:
        for claim in all_claim:
            known[claim.id] = claim
    names: dict[str, str] = {}

    def name_of(claim_id: str) -> str:
        return names.setdefault(claim_id, f"{step}.c{len(names) + 1}")

    def renamed(match: re.Match[str]) -> str:
        claim_ids = re.split(r"\s*[,;]\s*", match[1])
        if not any("." in claim_id for claim_id in claim_ids):
            return match[0]
        return (
            "".join(f"[{name_of(claim_id)}]" for claim_id in claim_ids if claim_id in known)
            or UNPROVEN
        )

    output = in_every_text(output, lambda text: MARKER.sub(renamed, text))
    claims = [
        known[claim_id].model_copy(update={"id": name_of(claim_id)})
        for claim_id in _in_order(names, known)
    ]
    return output, tuple(claims[:MOST_CLAIMS])


def _in_order(first: Iterable[str], others: Iterable[str]) -> list[str]:
    return list(dict.fromkeys([*first, *others]))


def _stop_reason(state: JobState, so_far: ChildUsage) -> StopReason:
    """Return the stop reason. A spent slice is a limit of this handoff; a limit above it belongs to
    the parent's budget.
    """
    if state.ended and state.ended.status is JobStatus.CANCELLED:
        return StopReason.CANCELLED
    match state.spent:
        case None:
            return StopReason.FINISHED
        case StopReason.PARENT_BUDGET:
            return StopReason.JOB_BUDGET
        case StopReason.JOB_BUDGET:
            return _limit_reached(state, so_far)
        case other:
            return other


def _limit_reached(state: JobState, so_far: ChildUsage) -> StopReason:
    """Return the limit with the largest used part."""
    limits = state.submitted.limits
    parts = {
        StopReason.MAX_TURNS: so_far.turns / (limits.max_turns or float("inf")),
        StopReason.MAX_TOKENS: so_far.usage.total_tokens / (limits.max_tokens or float("inf")),
        StopReason.MAX_USD: (so_far.usage.cost_microusd or 0)
        / (limits.max_microusd or float("inf")),
    }
    return max(parts, key=lambda reason: parts[reason])
