"""The result of a child job for its parent: its answer, as the result of the parent's handoff.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from handoff_queue.shared.settings.settings import OFFLINE_MODEL
from handoff_queue.shared.types.answer import Answer
from handoff_queue.shared.types.budget_measures import MEASURES, Measure
from handoff_queue.shared.types.citation_markers import (
    MARKER,
    map_texts,
    rename_sources_of,
    rename_tool_sources,
)
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.handoff import (
    MAX_ERROR_CHARS,
    Claim,
    HandoffResult,
    ResultStatus,
    StopReason,
)
from handoff_queue.shared.types.ids import parse_attempt, parse_step_id
from handoff_queue.shared.types.job_events import Parent
from handoff_queue.shared.types.usage import Usage
from handoff_queue.supervisor.lifecycle.answer import (
    build_body,
    build_content,
    collect_answer_claims,
    format_open_points,
    list_parts,
)
from handoff_queue.supervisor.lifecycle.child_jobs import has_gaps_alone
from handoff_queue.supervisor.lifecycle.conflict_resolution import (
    Dispute,
    find_disputes,
    format_disputes,
    list_disputed_claims,
)
from handoff_queue.supervisor.lifecycle.gaps import format_gaps, format_gaps_section
from handoff_queue.supervisor.lifecycle.job_retry import answer_stands
from handoff_queue.supervisor.lifecycle.origins import find_job_origins
from handoff_queue.supervisor.lifecycle.result_texts import (
    UNPROVEN,
    ResultTexts,
    find_claim_ids_with_step,
)
from handoff_queue.supervisor.lifecycle.state import JobState

MAX_CLAIMS = 9_999
"""Most claims of a result."""
_STATUS = {JobStatus.OK: ResultStatus.OK, JobStatus.PARTIAL: ResultStatus.PARTIAL}


@dataclass(frozen=True, slots=True)
class ChildUsage:
    """Usage of a child job by its budget, which also counts calls that were cut off."""

    usage: Usage
    turns: int


def build_result_for_parent(
    state: JobState,
    texts: ResultTexts,
    answer: Answer | None,
    handoff_usage: ChildUsage,
    so_far: ChildUsage,
) -> HandoffResult:
    """Return the result of an ended child.

    The claims of the answer keep their sources and get ids of the parent's step. If the child did
    not fill its gaps and the parent has its earlier answer, the result is a failure. So the earlier
    answer stays.

    Args:
        texts: payloads of `list_answer_payloads(state)`, `list_results_for_answer(state)` and the
            end's `because`.
        answer: None if there is no answer.
        handoff_usage: usage for this handoff of the parent.
        so_far: usage of the whole child.
    """
    assert state.ended is not None
    assert state.submitted.parent is not None
    parent = state.submitted.parent
    step_id = parse_step_id(parent.handoff_id)
    output: JsonValue = None
    claims: tuple[Claim, ...] = ()
    confidence = 0.0
    to_finish_microusd = None
    if answer:
        output, claims = _build_output_and_claims(state, texts, answer, parent)
        confidence = _compute_mean_confidence(texts.get_results(list_parts(state)))
        if has_gaps_alone(state):
            to_finish_microusd = answer.to_finish_microusd
    is_known = answer_stands(state) and state.kept.is_known_above
    status = ResultStatus.FAILED
    if output is not None and not is_known:
        status = _STATUS.get(state.ended.status, ResultStatus.FAILED)
    error = None
    if answer and answer.gaps and (is_known or status is ResultStatus.PARTIAL):
        error = f"its child job {state.job_id} lacks {format_gaps(answer.gaps)}"
    elif status is ResultStatus.FAILED:
        error = f"its child job {state.job_id}: {_explain_failure(state, texts, answer, output)}"
    if status is ResultStatus.FAILED:
        output = None
        claims = ()
    model = next(iter(state.models), None)
    if OFFLINE_MODEL in state.models:
        model = OFFLINE_MODEL
    return HandoffResult(
        handoff_id=parent.handoff_id,
        job_id=parent.job_id,
        step_id=step_id,
        attempt=parse_attempt(parent.handoff_id),
        status=status,
        output=output,
        claims=claims,
        confidence=confidence,
        usage=handoff_usage.usage,
        turns=handoff_usage.turns,
        stop_reason=_stop_reason(state, so_far),
        error=error[:MAX_ERROR_CHARS] if error else None,
        acted=any(step_state.acted for step_state in state.steps.values()) or None,
        to_finish_microusd=to_finish_microusd,
        model=model,
        origins=find_job_origins(state),
    )


def _explain_failure(
    state: JobState, texts: ResultTexts, answer: Answer | None, output: JsonValue
) -> str:
    if answer and output is None:
        return "its answer is not in the form that the step asks for"
    assert state.ended is not None
    return texts.explain(state.ended.because) or state.ended.reason or "it has no answer"


def _compute_mean_confidence(parts: Sequence[HandoffResult]) -> float:
    """Return the mean confidence of the results, from 0 to 1. It is 0 without a result."""
    if not parts:
        return 0.0
    return sum(part.confidence for part in parts) / len(parts)


def _build_output_and_claims(
    state: JobState, texts: ResultTexts, answer: Answer, parent: Parent
) -> tuple[JsonValue, tuple[Claim, ...]]:
    """Return the answer with markers in place of numbers, and its claims with ids of the
    parent's step: cited claims first, at most MAX_CLAIMS. Tool results have their names in the
    parent.

    The answer is None if the step asks for a form and the child has no answer in that form.
    """
    step = parse_step_id(parent.handoff_id)
    disputes = find_disputes(state, texts)
    output = _build_output(state, texts, answer, disputes)
    if output is None:
        return None, ()
    known = {claim.id: claim for claim in list_disputed_claims(disputes)}
    known |= collect_answer_claims(state, texts)
    names: dict[str, str] = {}

    def get_name(claim_id: str) -> str:
        return names.setdefault(claim_id, f"{step}.c{len(names) + 1}")

    def replace_marker(match: re.Match[str]) -> str:
        claim_ids = find_claim_ids_with_step(match)
        if not claim_ids:
            return match[0]
        markers = [f"[{get_name(claim_id)}]" for claim_id in claim_ids if claim_id in known]
        return "".join(markers) or UNPROVEN

    rename = build_source_renamer(parent)
    output = map_texts(output, lambda text: rename(MARKER.sub(replace_marker, text)))
    claims: list[Claim] = []
    for claim_id in dict.fromkeys([*names, *known]):
        claim = rename_sources_of(known[claim_id], rename)
        claims.append(claim.model_copy(update={"id": get_name(claim_id)}))
    return output, tuple(claims[:MAX_CLAIMS])


def build_source_renamer(parent: Parent) -> Callable[[str], str]:
    """Return the function that gives tool results in a text their names in the parent job:
    `tool:find.1/look#1` -> `tool:x.1.find.1/look#1` for the handoff `x.1`.
    """
    return lambda text: rename_tool_sources(
        text, lambda handoffs: f"{parent.handoff_id}.{handoffs}"
    )


def _build_output(
    state: JobState, texts: ResultTexts, answer: Answer, disputes: Sequence[Dispute]
) -> JsonValue:
    """Return the form, or the text of the answer with its disputes, gaps and open points.
    None: the answer lacks the form that the step asks for.
    """
    parts = texts.get_results(list_parts(state))
    if build_content(state, texts).is_form:
        return parts[0].output
    if state.submitted.answer_schema is not None:
        return None
    body = build_body(state, parts)
    blocks = (
        f"{body}{format_disputes(disputes, body)}",
        format_gaps_section(answer.gaps),
        format_open_points(answer.open_points),
    )
    return "\n\n".join(filter(None, blocks))


def _stop_reason(state: JobState, so_far: ChildUsage) -> StopReason:
    """Return the stop reason for the parent. A spent budget of the child is a limit of the
    parent's handoff; a spent budget of the parent is the parent's job budget.
    """
    if state.ended and state.ended.status is JobStatus.CANCELLED:
        return StopReason.CANCELLED
    match state.spent:
        case None:
            return StopReason.FINISHED
        case StopReason.PARENT_BUDGET:
            return StopReason.JOB_BUDGET
        case StopReason.JOB_BUDGET:
            return _find_reached_limit(state, so_far)
        case other:
            return other


def _find_reached_limit(state: JobState, so_far: ChildUsage) -> StopReason:
    """Return the stop reason for the limit whose used part is the largest."""
    limits = state.submitted.limits

    def compute_share(measure: Measure) -> float:
        return measure.get_used_amount(so_far) / (measure.get_limit(limits) or float("inf"))

    return max(MEASURES, key=compute_share).stop_reason
