"""A fork of an ended job: a new job with the same plan that keeps the results before one step.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import Fork, JobSubmitted, KeptStep, PlanMade
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import ApprovalOf
from handoff_queue.shared.types.origins import union
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.step import Step
from handoff_queue.supervisor.lifecycle.answer import is_plan_of_user
from handoff_queue.supervisor.lifecycle.origins import find_plan_origins
from handoff_queue.supervisor.lifecycle.state import JobState, StepState, StepStatus


def build_fork(
    state: JobState,
    from_step: str,
    specialists: Mapping[str, str],
    *,
    has_new_task: bool = False,
) -> Fork:
    """Return the fork of a job from one of its steps. The fork keeps the settled steps that do not
    depend on this step.

    Args:
        specialists: name -> digest of the specs that the fork uses in place of the announced
            specs.
        has_new_task: True if the step has another task, so that no person has approved the plan.

    Raises:
        UserError: the job is a child, has not ended or has no such step. Or the fork would repeat
            another step that may have acted on the world.
    """
    if state.submitted.parent:
        raise UserError(
            f"{state.job_id} is a child job of {state.submitted.parent.job_id}: fork the parent job"
        )
    if not state.ended:
        raise UserError(
            f"{state.job_id} has not ended yet: wait for its end",
            command=f"handoff watch {state.job_id}",
        )
    if from_step not in state.steps:
        raise UserError(
            f"{state.job_id} has no step {from_step[:60]}: its steps are"
            f" {', '.join(state.steps) or 'not planned yet'}"
        )
    first = StepId(from_step)
    repeated_ids = {first, *state.find_downstream(frozenset({first}))}
    kept_steps: list[KeptStep] = []
    for step_id, step in state.steps.items():
        if step_id in repeated_ids:
            _refuse_second_action(state, step_id, step, is_named=step_id == first)
        elif step.is_settled and step.result and step.result_status:
            kept_steps.append(_make_kept_step(step_id, step))
    earlier = state.submitted.fork
    new_tasks = dict.fromkeys((earlier and earlier.new_tasks) or ())
    if has_new_task:
        new_tasks[first] = None
    return Fork(
        job_id=state.job_id,
        from_step=first,
        kept=tuple(kept_steps),
        task_origins=find_plan_origins(state),
        specialists=dict(specialists),
        new_tasks=tuple(new_tasks) or None,
        is_planned_by_agent=not is_plan_of_user(state) or None,
        is_plan_approved=(ApprovalOf.PLAN in state.approved and not has_new_task) or None,
    )


def _refuse_second_action(
    state: JobState, step_id: StepId, step: StepState, *, is_named: bool
) -> None:
    """Refuse to repeat a step that may have acted on the world, unless the user named the step.

    Raises:
        UserError: the step may have acted.
    """
    if step.acted and not is_named:
        raise UserError(
            f"the fork would repeat step {step_id} of {state.job_id}, which may have acted on the"
            f" world: fork from {step_id} if it may act again (--from {step_id})"
        )


def _make_kept_step(step_id: StepId, step: StepState) -> KeptStep:
    assert step.result is not None
    assert step.result_status is not None
    results_with_claims = None
    if step.results_with_claims not in ((), (step.result,)):
        results_with_claims = step.results_with_claims
    return KeptStep(
        step=step_id,
        result=step.result,
        results_with_claims=results_with_claims,
        status=step.result_status,
        comparable_claims=step.comparable_claims,
        passages=step.passages or None,
        problem_result=step.problem_result,
        given_to=step.given_to,
        acted=step.acted,
        origins=step.origins,
    )


def build_fork_plan(plan: Plan, fork: Fork, task: str | None) -> Plan:
    """Return the plan of a fork.

    Args:
        plan: the plan of the forked job.
        task: another task of the first repeated step; None: the same task.
    """
    if task is None:
        return plan
    steps: list[Step] = []
    for step in plan.steps:
        if step.id == fork.from_step:
            steps.append(step.model_copy(update={"task": task}))
        else:
            steps.append(step)
    return plan.model_copy(update={"steps": tuple(steps)})


def get_fork_approvals(submitted: JobSubmitted) -> tuple[ApprovalOf, ...]:
    """Return the approvals that a fork begins with. Other jobs have none."""
    if submitted.fork is not None and submitted.fork.is_plan_approved:
        return (ApprovalOf.PLAN,)
    return ()


def get_fork_specialists(submitted: JobSubmitted) -> dict[str, str]:
    """Return the specs that came with a fork: name -> digest. Other jobs have none."""
    if submitted.fork is None:
        return {}
    return dict(submitted.fork.specialists)


def keep_results(
    state: JobState, event: PlanMade, steps: Mapping[StepId, StepState]
) -> dict[str, Any]:
    """Return the changes for a fork that has its plan: the kept steps have their results. If a
    person has edited the plan, all steps run.

    Args:
        steps: the steps of the plan before their first attempt.
    """
    fork = state.submitted.fork
    if fork is None or event.plan != state.submitted.workflow:
        return {}
    with_results = dict(steps)
    for kept_step in fork.kept:
        with_results[kept_step.step] = steps[kept_step.step].model_copy(
            update={
                "status": StepStatus.SETTLED,
                "result": kept_step.result,
                "result_status": kept_step.status,
                "comparable_claims": kept_step.comparable_claims,
                "passages": kept_step.passages or (),
                "results_with_claims": kept_step.results_with_claims or (kept_step.result,),
                "restated": None,
                "problem_result": kept_step.problem_result,
                "given_to": kept_step.given_to,
                "acted": kept_step.acted,
                "origins": kept_step.origins,
            }
        )
    origins = union(state.origins, *(kept_step.origins for kept_step in fork.kept))
    return {"steps": with_results, "origins": origins}


def list_kept_steps(state: JobState) -> list[StepId]:
    """Return the steps of a fork that have the results of the forked job. Other jobs have none."""
    if state.submitted.fork is None:
        return []
    kept_steps: list[StepId] = []
    for kept_step in state.submitted.fork.kept:
        step = state.steps.get(kept_step.step)
        if step is not None and step.result == kept_step.result:
            kept_steps.append(kept_step.step)
    return kept_steps
