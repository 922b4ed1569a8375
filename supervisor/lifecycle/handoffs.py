"""The handoff of one attempt at a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from handoff_queue.shared.types.errors import HandoffError
from handoff_queue.shared.types.handoff import AgentHandoff, Artifact, ContextResult
from handoff_queue.shared.types.ids import StepId, handoff_id
from handoff_queue.shared.types.limits import HandoffLimits
from handoff_queue.shared.types.names import FACT_GATE, SUB_SUPERVISOR
from handoff_queue.shared.types.plan import Step
from handoff_queue.shared.types.specialist import SpecialistSpec
from handoff_queue.shared.types.usage import microusd
from handoff_queue.supervisor.lifecycle.answer import sources_of_answer
from handoff_queue.supervisor.lifecycle.disputes import JUDGE
from handoff_queue.supervisor.lifecycle.input_steps import helpers_of
from handoff_queue.supervisor.lifecycle.observations import Observations
from handoff_queue.supervisor.lifecycle.plan_patches import REPLANNER
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.state import JobState, StepStatus

if TYPE_CHECKING:
    from handoff_queue.shared.types.handoff import BlobRef


def reassigned_steps(
    state: JobState, steps: Sequence[StepId], seen: Observations
) -> dict[StepId, str]:
    """Return the steps that another specialist gets, with its name. A step that was tried before
    stays with its specialist.
    """
    given, reassigned = Counter[str](), dict[StepId, str]()

    def busy(name: str) -> float:
        load = seen.loads[name]
        return (load.queued + given[name]) / max(1, load.slots)

    for step_id in steps:
        step = state.steps[step_id]
        own = step.specialist
        if own in seen.loads and step.attempt == 0:
            chosen = min((own, *seen.able(own)), key=busy)  # with equals, the plan's own
            given[chosen] += 1
            if chosen != own:
                reassigned[step_id] = chosen
    return reassigned


TOKENS_PER_TURN = 40_000
"""A handoff's token budget is this times its turns: a long context read on every turn, and its
answer.
"""
MOST_TASK_CHARS = 99_000
"""Characters of a step's task when feedback is added."""
ROLE_STEPS_TOKENS = 400_000
"""Token budget of a role's handoff: it reads what all steps have written."""


def context_for(state: JobState, depends_on: tuple[StepId, ...]) -> tuple[ContextResult, ...]:
    """Return references to the results of the given steps.

    Raises:
        HandoffError: a step has no result, so the handoff cannot be built.
    """
    given: dict[StepId, BlobRef] = {}
    for input_result in state.submitted.given:
        given[input_result.step] = input_result.result
    context = []
    for step_id in depends_on:
        if (
            result := state.steps[step_id].result if step_id in state.steps else given.get(step_id)
        ) is None:
            raise HandoffError(f"the result of {step_id} is not there yet")
        context.append(ContextResult(step_id=step_id, result=result))
    return tuple(context)


def step_handoff(
    state: JobState,
    step: Step,
    spec: SpecialistSpec,
    spec_digest: str,
    words: ResultTexts,
    answer_schema: Mapping[str, Any] | None,
    contract: SpecialistSpec | None = None,
) -> AgentHandoff:
    """Return the handoff for the next attempt at a step of the plan.

    `words`: of its remarks. `answer_schema`: the JSON Schema that the user wants the answer in.
    `contract`: the specialist that the step was planned for, if `spec` is another one. Its output
    schema and limits hold, and `spec` may use no tool with effects that the contract does not name.
    """
    planned = contract or spec
    current = state.steps[step.id]
    ended = tuple(
        dependency
        for dependency in step.depends_on
        if dependency not in state.steps or state.steps[dependency].status is StepStatus.SETTLED
    )
    there = tuple(
        dependency
        for dependency in ended
        if dependency not in state.steps or not state.steps[dependency].is_skipped
    )
    attempt = current.attempt + 1
    if answer_schema is not None and state.sinks == (step.id,):
        form = dict(answer_schema)
    else:
        form = planned.output_schema
    asked = state.submitted.limits.max_turns_per_handoff
    if asked:
        max_turns = min(spec.max_turns, asked)
    else:
        max_turns = spec.max_turns
    return AgentHandoff(
        handoff_id=handoff_id(step.id, attempt),
        job_id=state.job_id,
        step_id=step.id,
        attempt=attempt,
        assigned_to=step.specialist,
        specialist=spec_digest,
        task_description=_task(step, ended),
        depends_on=there,
        context=context_for(state, there),
        feedback=tuple(words.feedback(step.id, remark) for remark in current.remarks),
        artifacts=artifacts(state),
        expected_output_format=form,
        fallback_instruction=step.fallback,
        limits=_limits(
            _within(spec, planned), max_turns, TOKENS_PER_TURN * max_turns, state.working_deadline
        ),
        acts_with=_effects_allowed(state, step.id, spec, planned),
        model=state.submitted.model,
        depth=state.submitted.depth,
    )


def _effects_allowed(
    state: JobState, step_id: StepId, spec: SpecialistSpec, planned: SpecialistSpec
) -> tuple[str, ...] | None:
    """Return the tools with effects that an attempt may use. None: all tools of `spec`.

    Helpers and steps of a child job have none, because no person approves them before they begin.
    The replacement of a team has none either, since the team had none.
    """
    of_a_team = state.steps[step_id].outline.specialist == SUB_SUPERVISOR
    if state.submitted.parent or of_a_team or step_id in helpers_of(state):
        return ()
    if planned is not spec:
        return planned.tools
    return None


def _within(spec: SpecialistSpec, contract: SpecialistSpec) -> SpecialistSpec:
    """Return `spec` with the lower limits of the two on the money and the time of one handoff."""
    lowest: dict[str, Any] = {}
    for name in ("max_usd", "max_seconds"):
        limits: list[Any] = []
        for each in (spec, contract):
            if getattr(each, name) is not None:
                limits.append(getattr(each, name))
        lowest[name] = min(limits, default=None)
    return spec.model_copy(update=lowest)


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
    """Return the handoff for a role of the supervisor.

    Args:
        about: the steps whose results the role sees.
    """
    step_id = StepId(spec.name)
    deadline = (
        state.working_deadline if spec.name == REPLANNER else state.role_deadline
    )  # it makes no answer: it only adds work
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
        artifacts=()
        if spec.name == JUDGE
        else artifacts(state),  # it decides by the evidence that claims bring
        expected_output_format=dict(schema),
        limits=_limits(spec, spec.max_turns, ROLE_STEPS_TOKENS, deadline),
        model=state.submitted.model,
        depth=state.submitted.depth,
    )


def fact_check_handoff(
    state: JobState,
    spec: SpecialistSpec,
    spec_digest: str,
    attempt: int,
    *,
    task: str,
    schema: Mapping[str, Any],
) -> AgentHandoff:
    """Return the handoff for the fact-checker. It sees the parts of the answer, with their claims
    and quotes, and the job's documents.
    """
    parts, asked = sources_of_answer(state), state.submitted.limits.max_turns_per_handoff
    if asked:
        max_turns = min(spec.max_turns, asked)
    else:
        max_turns = spec.max_turns
    return AgentHandoff(
        handoff_id=handoff_id(FACT_GATE, attempt),
        job_id=state.job_id,
        step_id=StepId(FACT_GATE),
        attempt=attempt,
        assigned_to=spec.name,
        specialist=spec_digest,
        task_description=task,
        depends_on=tuple(parts),
        context=tuple(
            ContextResult(step_id=step_id, result=result) for step_id, result in parts.items()
        ),
        artifacts=artifacts(state),
        expected_output_format=dict(schema),
        limits=_limits(spec, max_turns, TOKENS_PER_TURN * max_turns, state.working_deadline),
        acts_with=(),
        model=state.submitted.model,
        depth=state.submitted.depth,
    )


def _task(step: Step, ended: tuple[StepId, ...]) -> str:
    """Return the task with the names of running dependencies that its join did not wait for."""
    missing: list[StepId] = []
    for dependency in step.depends_on:
        if dependency not in ended:
            missing.append(dependency)
    if not missing:
        return step.task
    return (
        f"{step.task[:MOST_TASK_CHARS]}\n\nNot here, and not waited for: {', '.join(missing):.900}."
    )


def _limits(
    spec: SpecialistSpec, max_turns: int, max_tokens: int, deadline: float
) -> HandoffLimits:
    return HandoffLimits(
        max_turns=max_turns,
        max_tokens=max_tokens,
        max_output_tokens=spec.max_output_tokens,
        max_microusd=None if spec.max_usd is None else max(1, microusd(spec.max_usd)),
        max_seconds=spec.max_seconds,
        deadline=deadline,
    )


def artifacts(state: JobState) -> tuple[Artifact, ...]:
    """Return the job's documents."""
    if state.submitted.manifest is None:
        return ()
    return (
        Artifact(
            kind="documents",
            name="documents",
            manifest=state.submitted.manifest,
            count=state.submitted.document_count,
        ),
    )
