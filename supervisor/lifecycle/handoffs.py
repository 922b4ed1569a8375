"""How a step becomes an AgentHandoff: exactly the results that it depends on, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shared.wire.errors import HandoffError
from shared.wire.handoff import AgentHandoff, Artifact, ContextResult
from shared.wire.ids import StepId, handoff_id
from shared.wire.limits import HandoffLimits
from shared.wire.plan import Step
from shared.wire.specialist import SpecialistSpec
from shared.wire.usage import microusd
from supervisor.lifecycle.disputes import JUDGE
from supervisor.lifecycle.state import JobState
from supervisor.lifecycle.words import Words

TOKENS_PER_TURN = 40_000
"""A handoff's token budget is this times its turns: a long context read on every turn, and its answer."""
ROLE_STEPS_TOKENS = 400_000
"""Token budget of a role's handoff: it reads what all steps have written."""


def context_for(state: JobState, depends_on: tuple[StepId, ...]) -> tuple[ContextResult, ...]:
    """References to the results of these steps.

    Raises:
        HandoffError: one of them has none: the step is not ready, and a handoff without it cannot be built.
    """
    found = []
    for step_id in depends_on:
        step = state.steps.get(step_id)
        if step is None or step.result is None:
            raise HandoffError(f"the result of {step_id} is not there yet")
        found.append(ContextResult(step_id=step_id, result=step.result))
    return tuple(found)


def step_handoff(
    state: JobState, step: Step, spec: SpecialistSpec, spec_digest: str, words: Words, answer_schema: Mapping[str, Any] | None
) -> AgentHandoff:
    """The next attempt at a step of the plan. `words`: of its remarks; `answer_schema`: what the user wants the answer to look like."""
    current = state.steps[step.id]
    attempt = current.attempt + 1
    is_only_sink = state.sinks == (step.id,)
    asked = state.submitted.limits.max_turns_per_handoff
    max_turns = min(spec.max_turns, asked) if asked else spec.max_turns
    return AgentHandoff(
        handoff_id=handoff_id(step.id, attempt),
        job_id=state.job_id,
        step_id=step.id,
        attempt=attempt,
        assigned_to=step.specialist,
        specialist=spec_digest,
        task_description=step.task,
        depends_on=step.depends_on,
        context=context_for(state, step.depends_on),
        feedback=tuple(words.feedback(step.id, remark) for remark in current.remarks),
        artifacts=artifacts(state),
        expected_output_format=dict(answer_schema) if answer_schema is not None and is_only_sink else spec.output_schema,
        fallback_instruction=step.fallback,
        limits=_limits(spec, max_turns, TOKENS_PER_TURN * max_turns, state.working_deadline),
        model=state.submitted.model,
    )


def role_handoff(
    state: JobState,
    spec: SpecialistSpec,
    spec_digest: str,
    attempt: int,
    *,
    task: str,
    about: tuple[StepId, ...],
    schema: Mapping[str, Any],
) -> AgentHandoff:
    """What one of the supervisor's roles is asked. `about`: the steps whose results it sees."""
    step_id = StepId(spec.name)
    return AgentHandoff(
        handoff_id=handoff_id(step_id, attempt),
        job_id=state.job_id,
        step_id=step_id,
        attempt=attempt,
        assigned_to=spec.name,
        specialist=spec_digest,
        task_description=task,
        depends_on=about,
        context=context_for(state, about),
        artifacts=() if spec.name == JUDGE else artifacts(state),  # it decides by the evidence that claims bring
        expected_output_format=dict(schema),
        limits=_limits(spec, spec.max_turns, ROLE_STEPS_TOKENS, state.role_deadline),
        model=state.submitted.model,
    )


def _limits(spec: SpecialistSpec, max_turns: int, max_tokens: int, deadline: float) -> HandoffLimits:
    return HandoffLimits(
        max_turns=max_turns,
        max_tokens=max_tokens,
        max_output_tokens=spec.max_output_tokens,
        max_microusd=None if spec.max_usd is None else max(1, microusd(spec.max_usd)),
        max_seconds=spec.max_seconds,
        deadline=deadline,
    )


def artifacts(state: JobState) -> tuple[Artifact, ...]:
    """The job's documents."""
    if state.submitted.manifest is None:
        return ()
    return (Artifact(kind="documents", name="documents", manifest=state.submitted.manifest, count=state.submitted.document_count),)
