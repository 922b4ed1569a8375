"""The conditions of steps, decided by the results of earlier steps. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pydantic import JsonValue

from handoff_queue.shared.types.condition_evaluator import (
    ConditionOutcome,
    Undecided,
    evaluate_condition,
)
from handoff_queue.shared.types.condition_syntax import parse_condition
from handoff_queue.shared.types.events import AbandonedStep, ConditionsChecked
from handoff_queue.shared.types.handoff import (
    BlobRef,
    HandoffResult,
    ResultStatus,
    StopReason,
    make_ref,
)
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.step import Step
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts, build_result_by_code
from handoff_queue.supervisor.lifecycle.state import JobState

CONFIDENCE = "Your notes also have a line `confidence:` with a number from 0.0 to 1.0."
"""Sentence in the task of a step whose confidence a condition reads. Others need not state it."""


def with_confidence(plan: Plan, step: Step, request: str = "") -> str:
    """Return the task of a step. If a condition reads the confidence of its result, the task asks
    for it.

    Args:
        request: request of a child job, which may ask for it. The confidence of a child job is the
            confidence of the last steps of its plan. Empty for other jobs.
    """
    if CONFIDENCE in step.task:
        return step.task
    is_asked_for = CONFIDENCE in request and not plan.dependents[step.id]
    if is_asked_for or step.id in plan.steps_with_read_confidence:
        return f"{step.task}\n\n{CONFIDENCE}"
    return step.task


def iterate_condition_results(
    state: JobState, plan: Plan, steps: Iterable[StepId]
) -> Iterator[BlobRef]:
    """Yield the results that the conditions of the given steps need."""
    for step_id in steps:
        condition = plan.by_id[step_id].when
        if condition is None:
            continue
        for name in condition.steps.values():
            result = state.steps[name].result
            if result is not None:
                yield result


def make_conditions_event(
    state: JobState, plan: Plan, steps: Sequence[StepId], texts: ResultTexts
) -> tuple[ConditionsChecked, list[HandoffResult]]:
    """Return the event with the outcome of the steps' conditions, and the results that say why
    steps do not begin.

    Args:
        texts: payloads of `iterate_condition_results`.
    """
    met_steps: list[StepId] = []
    skipped_results: list[HandoffResult] = []
    undecided_results: list[HandoffResult] = []
    for step_id in steps:
        try:
            outcome = _evaluate_condition(state, plan.by_id[step_id], texts)
        except Undecided as problem:
            undecided_results.append(
                _make_result_by_code(state, step_id, f"its condition can't be decided: {problem}")
            )
            continue
        if outcome.is_met:
            met_steps.append(step_id)
        else:
            skipped_results.append(_make_skip_result(state, step_id, outcome.why))
    event = ConditionsChecked(
        met=tuple(met_steps),
        skipped=_build_references(skipped_results),
        undecided=_build_references(undecided_results),
    )
    return event, [*skipped_results, *undecided_results]


def make_skip_event(
    state: JobState, steps: Sequence[StepId], why: str
) -> tuple[ConditionsChecked, list[HandoffResult]]:
    """Return the event that skips the steps for the same reason, and the results that say why."""
    results = [_make_skip_result(state, step_id, why) for step_id in steps]
    return ConditionsChecked(skipped=_build_references(results)), results


def _evaluate_condition(state: JobState, step: Step, texts: ResultTexts) -> ConditionOutcome:
    """Return the outcome of a step's condition. A step without a condition may begin.

    Raises:
        Undecided: a needed result is missing, or the results do not decide the condition.
    """
    condition = step.when
    if condition is None:
        return ConditionOutcome(is_met=True, why="")
    fields = {
        name: _get_fields(state, source_id, texts) for name, source_id in condition.steps.items()
    }
    item: JsonValue = dict(condition.item) if isinstance(condition.item, dict) else condition.item
    return evaluate_condition(parse_condition(condition.text), fields, item)


def _get_fields(state: JobState, step_id: StepId, texts: ResultTexts) -> Mapping[str, JsonValue]:
    """Return the fields of a step's result that a condition can name.

    Raises:
        Undecided: the step has no result yet.
    """
    result = state.steps[step_id].result
    if result is None:
        raise Undecided(f"{step_id} has no result yet")
    content = texts.get_result(result)
    return {
        "output": content.output,
        "status": content.status.value,
        "confidence": content.confidence,
    }


def _make_skip_result(state: JobState, step_id: StepId, why: str) -> HandoffResult:
    return _make_result_by_code(state, step_id, why).model_copy(
        update={"status": ResultStatus.SKIPPED}
    )


def _make_result_by_code(state: JobState, step_id: StepId, why: str) -> HandoffResult:
    attempt = max(1, state.steps[step_id].attempt)
    return build_result_by_code(state.job_id, step_id, attempt, why, StopReason.CANCELLED)


def _build_references(results: Sequence[HandoffResult]) -> tuple[AbandonedStep, ...]:
    references: list[AbandonedStep] = []
    for result in results:
        references.append(AbandonedStep(step=result.step_id, result=make_ref(result.to_json())))
    return tuple(references)
