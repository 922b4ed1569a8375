"""The handoffs of attempts at steps, of roles and of the fact-checker. The module also gives the
time until which their model calls go through batches of the provider. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from handoff_queue.shared.types.errors import HandoffError
from handoff_queue.shared.types.handoff import (
    MAX_TEXT_CHARS,
    AgentHandoff,
    Artifact,
    ContextResult,
)
from handoff_queue.shared.types.ids import StepId, build_handoff_id
from handoff_queue.shared.types.job_options import ApprovalOf, Mode
from handoff_queue.shared.types.limits import HandoffLimits
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST, FACT_GATE, PLANNING_ROLES, Role
from handoff_queue.shared.types.origins import WEB, Origin, union
from handoff_queue.shared.types.specialist import SpecialistSpec
from handoff_queue.shared.types.step import Step
from handoff_queue.shared.types.usage import to_microusd
from handoff_queue.supervisor.lifecycle.answer import find_answer_sources
from handoff_queue.supervisor.lifecycle.claim_sources import list_claim_sources
from handoff_queue.supervisor.lifecycle.gates import with_requirements
from handoff_queue.supervisor.lifecycle.helper_steps import find_helpers
from handoff_queue.supervisor.lifecycle.observations import Observations
from handoff_queue.supervisor.lifecycle.origins import (
    find_job_origins,
    find_step_origins,
    get_user_request,
)
from handoff_queue.supervisor.lifecycle.result_texts import ResultTexts
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.lifecycle.user_messages import list_remarks

if TYPE_CHECKING:
    from handoff_queue.shared.types.handoff import BlobRef

MIN_TOKENS_PER_TURN = 100_000
"""Least token budget of a handoff for each of its turns. A turn reads a long context, whose old
results are cleared, and writes an answer.
"""
MAX_TASK_CHARS = MAX_TEXT_CHARS - 1_000
"""Most characters of a step's task if code adds sentences to it. The rest is for the sentence about
running dependencies, of at most 933 characters (`_build_task`).
"""
ROLE_STEPS_TOKENS = 400_000
"""Token budget of a role's handoff: a role may read the results of all steps."""


def find_reassignments(
    state: JobState, steps: Sequence[StepId], observations: Observations
) -> dict[StepId, str]:
    """Return the steps that go to a less busy specialist of the same capability, with its
    name. Steps that were tried before stay with their specialists.
    """
    handoff_counts = Counter[str]()
    reassignments: dict[StepId, str] = {}

    def compute_load(name: str) -> float:
        """Return the handoffs of a specialist for each of its slots."""
        load = observations.loads[name]
        return (load.queued + handoff_counts[name]) / max(1, load.slots)

    for step_id in steps:
        step = state.steps[step_id]
        planned_name = step.specialist
        if planned_name in observations.loads and step.attempt == 0:
            # `min` returns the planned specialist if both are equally busy.
            chosen_name = min(
                (planned_name, *observations.list_able_specialists(planned_name)), key=compute_load
            )
            handoff_counts[chosen_name] += 1
            if chosen_name != planned_name:
                reassignments[step_id] = chosen_name
    return reassignments


def build_context(state: JobState, depends_on: Sequence[StepId]) -> tuple[ContextResult, ...]:
    """Return references to the results of the given steps and inputs of the job.

    Raises:
        HandoffError: a step has no result, so the handoff cannot be built.
    """
    given_results: dict[StepId, BlobRef] = {}
    for input_result in state.submitted.given:
        given_results[input_result.step] = input_result.result
    context: list[ContextResult] = []
    for step_id in depends_on:
        step = state.steps.get(step_id)
        result = step.result if step else given_results.get(step_id)
        if result is None:
            raise HandoffError(f"the result of {step_id} is not there yet")
        is_checked = None if step else True
        context.append(ContextResult(step_id=step_id, result=result, is_checked=is_checked))
    return tuple(context)


def _list_claim_sources(
    state: JobState, context: Sequence[ContextResult], own_step: StepId | None = None
) -> tuple[ContextResult, ...] | None:
    """Return the results that state the claims which the context restates; None if there are none.

    Args:
        own_step: the step of the handoff, whose earlier results restate claims, too.
    """
    steps = [item.step_id for item in context]
    if own_step is not None:
        steps.append(own_step)
    return list_claim_sources(state, steps, [item.result for item in context]) or None


def build_step_handoff(
    state: JobState,
    step: Step,
    spec: SpecialistSpec,
    spec_digest: str,
    texts: ResultTexts,
    answer_schema: Mapping[str, Any] | None,
    contract: SpecialistSpec | None = None,
) -> AgentHandoff:
    """Return the handoff for the next attempt at a step of the plan.

    Args:
        texts: payloads of the remarks on the step.
        answer_schema: the JSON Schema of the answer, for the only sink of the plan; None: any form.
        contract: the specialist that the step was planned for, if `spec` is another one. Its output
            schema and its limits on money and time hold. `spec` may use no tool with effects that
            the contract does not name.

    Raises:
        HandoffError: a settled dependency has no result.
    """
    planned_spec = contract or spec
    inputs: list[StepId] = []
    unfinished: list[StepId] = []
    for dependency in step.depends_on:
        before = state.steps.get(dependency)
        if before is not None and not before.is_settled:
            unfinished.append(dependency)
        elif before is None or not before.is_skipped:  # None: an input of the job, not a step
            inputs.append(dependency)
    attempt = state.steps[step.id].attempt + 1
    if answer_schema is not None and state.sinks == (step.id,):
        form = dict(answer_schema)
    else:
        form = planned_spec.output_schema
    origins = find_step_origins(state, step.id, inputs)
    if form not in (spec.output_schema, answer_schema):
        # the worker of another specialist has announced the words in the schema
        origins = union(origins, (WEB,))
    task = with_requirements(state, step.id, _build_task(step, unfinished), MAX_TASK_CHARS)
    feedback = [texts.build_feedback(step.id, remark) for remark in list_remarks(state, step.id)]
    max_turns = _compute_max_turns(state, spec)
    max_tokens = compute_tokens_per_turn(spec) * max_turns
    context = build_context(state, inputs)
    return AgentHandoff(
        handoff_id=build_handoff_id(step.id, attempt),
        job_id=state.job_id,
        step_id=step.id,
        attempt=attempt,
        assigned_to=step.specialist,
        specialist=spec_digest,
        task_description=task,
        depends_on=tuple(inputs),
        context=context,
        claim_sources=_list_claim_sources(state, context, step.id),
        feedback=tuple(feedback),
        artifacts=list_artifacts(state),
        expected_output_format=form,
        fallback_instruction=step.fallback,
        limits=_build_limits(
            _lower_limits(spec, planned_spec), max_turns, max_tokens, state.working_deadline
        ),
        compared=_is_compared(state, spec),
        acts_with=_list_allowed_effects(state, step.id, spec, planned_spec),
        call_approval_s=_compute_approval_wait_s(state),
        model=state.submitted.model,
        depth=state.submitted.depth,
        origins=origins,
        batch_until=compute_batch_end(state, step.id),
        request=get_user_request(state),
    )


def _is_compared(state: JobState, spec: SpecialistSpec) -> bool | None:
    """Return False if a step's claims are compared with no other claims and with no facts; else
    None. One specialist alone and the only step of a plan have such claims. The program of a runner
    caches its prompt as a whole, so it gets the prompt of all other plans.
    """
    submitted = state.submitted
    if submitted.facts is not None:
        return None
    if state.mode is Mode.SINGLE:
        return False
    may_get_steps = state.mode is Mode.ADAPTIVE or submitted.parent or submitted.given
    if len(state.steps) == 1 and not may_get_steps and spec.runner is None:
        return False
    return None


def _compute_approval_wait_s(state: JobState) -> int | None:
    """Return how long a handoff may wait for the approval of a call; None: no person is asked."""
    approvals = state.submitted.approvals
    if ApprovalOf.TOOLS in approvals.what:
        return approvals.wait_s
    return None


def _compute_max_turns(state: JobState, spec: SpecialistSpec) -> int:
    """Return the turns of the specialist, at most the job's limit for each handoff."""
    limit = state.submitted.limits.max_turns_per_handoff
    if limit:
        return min(spec.max_turns, limit)
    return spec.max_turns


def _list_allowed_effects(
    state: JobState, step_id: StepId, spec: SpecialistSpec, planned_spec: SpecialistSpec
) -> tuple[str, ...] | None:
    """Return the tools with effects that an attempt may use. None: all tools of `spec`.

    Helpers and steps of a child job may use none, because no person approves them before they
    begin. A specialist that replaces a child job may use none either, because the child job had
    none. Any other replacement may only use tools of the planned specialist, and none if the plan
    says that the step does not act. A worker announces the tools of its specialist, and the person
    who approves acting steps was not asked about such a step.
    """
    outline = state.steps[step_id].outline
    is_of_child_job = outline.specialist == CHILD_JOB_SPECIALIST
    if state.submitted.parent or is_of_child_job or step_id in find_helpers(state):
        return ()
    if planned_spec is not spec:
        return planned_spec.tools if outline.acts else ()
    return None


def _lower_limits(spec: SpecialistSpec, contract: SpecialistSpec) -> SpecialistSpec:
    """Return `spec` with the lower limits of the two on the money and the time of one handoff."""
    lowest: dict[str, Any] = {}
    for name in ("max_usd", "max_seconds"):
        limits = (getattr(spec, name), getattr(contract, name))
        lowest[name] = min((limit for limit in limits if limit is not None), default=None)
    return spec.model_copy(update=lowest)


def build_role_handoff(
    state: JobState,
    spec: SpecialistSpec,
    spec_digest: str,
    attempt: int,
    *,
    task: str,
    about: tuple[StepId, ...],
    schema: Mapping[str, Any],
    origins: Sequence[Origin] = (),
) -> AgentHandoff:
    """Return the handoff for a role of the supervisor.

    Args:
        about: the steps whose results the role sees.
        origins: origins of the task, in addition to those of the job.
    """
    step_id = StepId(spec.name)
    deadline = state.role_deadline
    if spec.name == Role.REPLANNER:  # it only adds work, which must end before an answer is made
        deadline = state.working_deadline
    documents = list_artifacts(state)
    if spec.name == Role.JUDGE:  # it decides by the evidence in the claims
        documents = ()
    context = build_context(state, about)
    return AgentHandoff(
        handoff_id=build_handoff_id(step_id, attempt),
        job_id=state.job_id,
        step_id=step_id,
        attempt=attempt,
        assigned_to=spec.name,
        specialist=spec_digest,
        task_description=task,
        depends_on=about,
        context=context,
        claim_sources=_list_claim_sources(state, context),
        artifacts=documents,
        expected_output_format=dict(schema),
        limits=_build_limits(spec, spec.max_turns, ROLE_STEPS_TOKENS, deadline),
        model=state.submitted.model,
        depth=state.submitted.depth,
        origins=union(find_job_origins(state), origins),
        batch_until=compute_role_batch_end(state, spec.name),
    )


def build_fact_check_handoff(
    state: JobState,
    spec: SpecialistSpec,
    spec_digest: str,
    attempt: int,
    *,
    task: str,
    schema: Mapping[str, Any],
) -> AgentHandoff:
    """Return the handoff for the fact-checker. It sees the parts of the answer, with their
    claims and quotes, and the job's documents.
    """
    parts = find_answer_sources(state)
    max_turns = _compute_max_turns(state, spec)
    is_checked = True if state.synthesis is not None else None
    context: list[ContextResult] = []
    for step_id, result in parts.items():
        context.append(ContextResult(step_id=step_id, result=result, is_checked=is_checked))
    return AgentHandoff(
        handoff_id=build_handoff_id(FACT_GATE, attempt),
        job_id=state.job_id,
        step_id=StepId(FACT_GATE),
        attempt=attempt,
        assigned_to=spec.name,
        specialist=spec_digest,
        task_description=task,
        depends_on=tuple(parts),
        context=tuple(context),
        claim_sources=_list_claim_sources(state, context),
        artifacts=list_artifacts(state),
        expected_output_format=dict(schema),
        limits=_build_limits(
            spec, max_turns, compute_tokens_per_turn(spec) * max_turns, state.working_deadline
        ),
        acts_with=(),
        model=state.submitted.model,
        depth=state.submitted.depth,
        origins=find_job_origins(state),
        batch_until=compute_role_batch_end(state, FACT_GATE),
        request=get_user_request(state),
    )


def _build_task(step: Step, unfinished: Sequence[StepId]) -> str:
    """Return the task, and the names of running dependencies for which its join did not wait."""
    if not unfinished:
        return step.task
    names = ", ".join(unfinished)
    return f"{step.task[:MAX_TASK_CHARS]}\n\nNot here, and not waited for: {names:.900}."


def compute_tokens_per_turn(spec: SpecialistSpec) -> int:
    """Return the token budget for each turn of a specialist. A specialist whose results are cleared
    later than usual has a larger budget: its requests are a quarter longer at most.
    """
    if spec.context is None:
        return MIN_TOKENS_PER_TURN
    longest = max(spec.context.clear_tools_at or 0, spec.context.compact_at or 0)
    return max(MIN_TOKENS_PER_TURN, longest * 5 // 4)


def _build_limits(
    spec: SpecialistSpec, max_turns: int, max_tokens: int, deadline: float
) -> HandoffLimits:
    max_microusd = None
    if spec.max_usd is not None:
        max_microusd = max(1, to_microusd(spec.max_usd))
    return HandoffLimits(
        max_turns=max_turns,
        max_tokens=max_tokens,
        max_output_tokens=spec.max_output_tokens,
        max_microusd=max_microusd,
        max_seconds=spec.max_seconds,
        deadline=deadline,
    )


def list_artifacts(state: JobState) -> tuple[Artifact, ...]:
    """Return the reference to the job's documents; empty if it has none."""
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


LIVE_STEP_S = 300.0
"""Seconds that are kept for each step that is left, and for the end of the job, if all their calls
are live.
"""
MAX_LIVE_CALL_SHARE = 0.5
"""Largest share of the job's time that is kept for live calls. Batches have the rest."""
PLANNING_SHARE = 0.25
"""Share of the rest of the slack in which batches of a planning role may end. Many steps may wait
for one call of such a role, so the steps have most of the slack.
"""


def compute_batch_end(state: JobState, step_id: StepId) -> float | None:
    """Return the time until which calls of a step go through batches, in Unix seconds. After it,
    there is just enough time to end the job with live calls. None: all its calls are live.
    """
    return _compute_batch_end(state, state.steps_after.get(step_id, 0))


def compute_role_batch_end(state: JobState, role: str) -> float | None:
    """Return the time until which calls of a role go through batches, in Unix seconds. After it,
    there is just enough time to end the job with live calls, also if steps run after the role.
    None: all its calls are live.

    Args:
        role: the name of a role, or FACT_GATE for the fact-checker.
    """
    after = 0
    is_last_review = role == Role.ASSESSOR and not state.may_send_back
    if role != Role.SYNTHESIZER and not is_last_review:
        after = 2 + max(state.steps_after.values(), default=0)  # the longest chain, and a review
    until = _compute_batch_end(state, after)
    if until is None or role not in PLANNING_ROLES:
        return until
    return state.as_of + PLANNING_SHARE * (until - state.as_of)


def _compute_batch_end(state: JobState, after: int) -> float | None:
    """Return the time until which calls go through batches.

    Args:
        after: number of handoffs that come one after the other, after this one.
    """
    if not state.submitted.is_batched:
        return None
    kept_s = LIVE_STEP_S * (2 + after)
    return state.working_deadline - min(
        kept_s, MAX_LIVE_CALL_SHARE * state.submitted.limits.max_seconds
    )
