"""Inputs of a job that follows another job: the results of the earlier job, under names that
no step of the new job has. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from handoff_queue.shared.types.citation_markers import (
    map_texts,
    rename_sources_of,
    rename_tool_sources,
)
from handoff_queue.shared.types.handoff import BlobRef, Claim, GivenResult, HandoffResult, make_ref
from handoff_queue.shared.types.ids import StepId, build_handoff_id
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.names import Role
from handoff_queue.shared.types.origins import Origins, get_origins, union
from handoff_queue.supervisor.lifecycle.answer import find_usable_sinks, list_parts
from handoff_queue.supervisor.lifecycle.claim_sources import (
    collect_claims_of_steps,
    list_source_payloads,
)
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.state import JobState

MAX_PASSED_RESULTS = 50
"""Most results that a job passes on. Parts of its answer come first, because in a job with
thousands of steps they combine the other results.
"""
_MAX_STEP_ID_CHARS = 48
"""Most characters of a step id."""
_BEFORE = re.compile(r"prev([0-9]*)_(.+)")
_QUALIFIED = re.compile(r"\[([a-z][a-z0-9_-]{0,47})\.(c[0-9]{1,4})\]")


def choose_results_to_give(state: JobState) -> dict[StepId, BlobRef]:
    """Return the results to pass on: parts of the answer, then other usable results, then the
    job's own inputs.
    """
    results: dict[StepId, BlobRef] = {}
    if state.synthesis:
        results[StepId(Role.SYNTHESIZER)] = state.synthesis
    for step_id in (*find_usable_sinks(state), *state.usable_steps):
        result = state.steps[step_id].result
        if result:
            results[step_id] = result
    for given_result in state.submitted.given:
        results[given_result.step] = given_result.result
    return dict(list(results.items())[:MAX_PASSED_RESULTS])


def list_payloads_to_give(
    state: JobState, results: Mapping[StepId, BlobRef]
) -> tuple[BlobRef, ...]:
    """Return the payloads that `convert_to_given_results` reads for these results."""
    return (*results.values(), *list_source_payloads(state, [*results.items()]))


def copy_results(
    state: JobState, texts: ResultTexts
) -> tuple[tuple[GivenResult, ...], tuple[str, ...]]:
    """Return the results for a new job, and their payloads.

    Args:
        texts: payloads of `list_payloads_to_give(state, choose_results_to_give(state))`.
    """
    return convert_to_given_results(state, choose_results_to_give(state), list_parts(state), texts)


def convert_to_given_results(
    state: JobState,
    results: Mapping[StepId, BlobRef],
    answers: Collection[BlobRef],
    texts: ResultTexts,
) -> tuple[tuple[GivenResult, ...], tuple[str, ...]]:
    """Return the results of a job as inputs of another job, and their payloads.

    Args:
        results: the results by step.
        answers: the results that are the answer of the job.
        texts: payloads of `list_payloads_to_give(state, results)`.
    """
    given_results, payloads = [], []
    claims = collect_claims_of_steps(state, [*results.items()], texts)
    before = {given_result.step: given_result for given_result in state.submitted.given}
    for step_id, result in results.items():
        step = state.steps.get(step_id)
        step_origins: Origins = ()
        if step:
            title, specialist = step.outline.title, step.specialist
            step_origins = step.origins
        elif step_id in before:
            title, specialist = before[step_id].title, before[step_id].specialist
        else:
            title, specialist = "The answer", step_id
        later_name = build_later_name(step_id)
        renamed = _rename_result(later_name, texts.get_result(result), claims)
        payload = renamed.to_json()
        given_results.append(
            GivenResult(
                step=later_name,
                specialist=specialist,
                title=title,
                result=make_ref(payload),
                is_answer=result in answers,
                origins=union(get_origins(renamed.origins), step_origins),
            )
        )
        payloads.append(payload)
    return tuple(given_results), tuple(payloads)


def build_later_name(step_id: StepId) -> StepId:
    """Return the name of a step in a later job: `find` -> `prev_find` -> `prev2_find`. A name
    that gets too long is cut and gets a digest, so that different names stay different.
    """
    match = _BEFORE.fullmatch(step_id)
    if match:
        name = f"prev{int(match[1] or 1) + 1}_{match[2]}"
    else:
        name = f"prev_{step_id}"
    if len(name) > _MAX_STEP_ID_CHARS:
        name = f"{name[: _MAX_STEP_ID_CHARS - 9]}_{compute_digest(step_id)[:8]}"
    return StepId(name)


def _rename_result(
    name: StepId, result: HandoffResult, claims: Mapping[str, Claim]
) -> HandoffResult:
    """Return the result of another job's step under a new name. The ids of all its claims, the
    markers in its output, and the names of tool results get the new names of their steps.

    Args:
        claims: the claims that are used, by id. Other claims are left out.
    """
    used = [claims[claim.id] for claim in result.claims if claim.id in claims]
    return result.model_copy(
        update={
            "step_id": name,
            "handoff_id": build_handoff_id(name, result.attempt),
            "output": map_texts(result.output, lambda text: rename_sources(_rename_markers(text))),
            "claims": tuple(map(_rename_claim, used)),
        }
    )


def rename_sources(text: str) -> str:
    """Return a text in which tool results have their names in a later job: `tool:find.1/look#1`
    -> `tool:prev_find.1/look#1`.
    """

    def rename(handoffs: str) -> str:
        step, _, rest = handoffs.partition(".")
        return f"{build_later_name(StepId(step))}.{rest}"

    return rename_tool_sources(text, rename)


def _rename_claim(claim: Claim) -> Claim:
    claim = rename_sources_of(claim, rename_sources)
    step, dot, number = claim.id.rpartition(".")
    if dot:
        return claim.model_copy(update={"id": f"{build_later_name(StepId(step))}.{number}"})
    return claim


def _rename_markers(text: str) -> str:
    """Return a text whose markers have the names of the steps in a later job."""

    def rename_marker(marker: re.Match[str]) -> str:
        step_id, claim = StepId(marker[1]), marker[2]
        return f"[{build_later_name(step_id)}.{claim}]"

    return _QUALIFIED.sub(rename_marker, text)
