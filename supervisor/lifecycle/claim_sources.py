"""The results that state the claims which other results restate. Pure.

A worker that was taken over can write any claim under the name of another step. So readers use a
restated claim only as an accepted result of its own step states it (`collect_claims`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from handoff_queue.shared.types.handoff import (
    BlobRef,
    Claim,
    ContextResult,
    HandoffResult,
    collect_claims,
)
from handoff_queue.shared.types.ids import StepId
from handoff_queue.supervisor.lifecycle.plan_graph import find_reachable
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.state import JobState


def list_claim_sources(
    state: JobState, steps: Sequence[StepId], results: Iterable[BlobRef]
) -> tuple[ContextResult, ...]:
    """Return the results that state the claims which the results of some steps restate.

    Args:
        steps: the steps whose results restate claims.
        results: results that the reader has already.
    """
    known = {result.digest for result in results}
    sources: list[ContextResult] = []
    restates_given = False
    for step_id in _find_restated_steps(state, steps):
        step = state.steps.get(step_id)
        if step is None:
            restates_given = True
            continue
        for result in step.results_with_claims:
            if result.digest not in known:
                sources.append(ContextResult(step_id=step_id, result=result))
    if restates_given:
        for item in state.submitted.given:
            if item.result.digest not in known:
                sources.append(
                    ContextResult(step_id=item.step, result=item.result, is_checked=True)
                )
    return tuple(sources)


def _find_restated_steps(state: JobState, steps: Iterable[StepId]) -> dict[StepId, None]:
    """Return the steps and the given results whose claims the results of some steps may restate."""
    restated_steps: dict[StepId, None] = {}
    unknown: list[StepId] = []
    for step_id in steps:
        step = state.steps.get(step_id)
        if step is None:  # a given result, or the result of a role
            continue
        if step.restated is None:
            unknown.append(step_id)
        else:
            restated_steps |= dict.fromkeys(step.restated)
    if unknown:
        before = find_reachable(unknown, lambda name: state.steps[name].outline.depends_on)
        restated_steps |= dict.fromkeys(sorted(before))
        restated_steps |= dict.fromkeys(item.step for item in state.submitted.given)
    return restated_steps


def collect_claims_of_steps(
    state: JobState, results: Sequence[tuple[StepId, BlobRef]], texts: ResultTexts
) -> dict[str, Claim]:
    """Return the claims of results by id, in the order in which an id comes first.

    Args:
        texts: payloads of `results` and of `list_source_payloads` for them.
    """
    checked_steps = {item.step for item in state.submitted.given}
    checked_steps.update(step_id for step_id, _ in results if step_id not in state.steps)
    sources: list[tuple[StepId, HandoffResult]] = []
    for item in _list_sources(state, results):
        sources.append((item.step_id, texts.get_result(item.result)))
    loaded = [(step_id, texts.get_result(result)) for step_id, result in results]
    return collect_claims(loaded, sources, checked_steps)


def list_source_payloads(
    state: JobState, results: Sequence[tuple[StepId, BlobRef]]
) -> tuple[BlobRef, ...]:
    """Return the payloads of the claims that these results of steps restate."""
    return tuple(item.result for item in _list_sources(state, results))


def _list_sources(
    state: JobState, results: Sequence[tuple[StepId, BlobRef]]
) -> tuple[ContextResult, ...]:
    """Return the results that state the claims which these results of steps restate."""
    steps = [step_id for step_id, _ in results]
    return list_claim_sources(state, steps, [result for _, result in results])
