"""The steps that child jobs do. Pure.

A plan gives such a step to `supervisor`. A separate job then does the step.
"""

from __future__ import annotations

from collections.abc import Sequence

from handoff_queue.shared.types.events import Child, JobSubmitted
from handoff_queue.shared.types.handoff import BlobRef
from handoff_queue.shared.types.ids import JobId, StepId, build_handoff_id, derive_child_id
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST
from handoff_queue.shared.types.specialist import SpecialistSpec
from handoff_queue.supervisor.lifecycle.child_job_budgets import compute_child_limits
from handoff_queue.supervisor.lifecycle.commands import Command, IssueToChild
from handoff_queue.supervisor.lifecycle.state import JobState, PreviousChildJob

CHILD_JOB_SPEC = SpecialistSpec(
    name=CHILD_JOB_SPECIALIST,
    description=(
        "Takes a part of the request that needs several specialists, and plans and supervises a"
        " team for it. Expensive. Not for work that one specialist can do alone."
    ),
    instructions=(
        "A child job runs a separate job: its planner, its steps and its assessor have their"
        " own instructions."
    ),
)
"""The specialist that planners see. Its instructions are unused: the roles of the child job
have their own.
"""


def may_have_children(submitted: JobSubmitted) -> bool:
    """Return whether a step of this job may go to a child job."""
    return submitted.depth < submitted.limits.max_depth


def separate_child_steps(
    state: JobState, ready: Sequence[StepId]
) -> tuple[list[StepId], list[Command]]:
    """Return the steps that one agent does, and the commands that issue the other steps to
    child jobs.
    """
    of_agents: list[StepId] = []
    commands: list[Command] = []
    for step_id in ready:
        if state.steps[step_id].specialist == CHILD_JOB_SPECIALIST:
            commands.append(IssueToChild(step_id))
        else:
            of_agents.append(step_id)
    return of_agents, commands


def build_child(state: JobState, step_id: StepId, before: JobId | None) -> Child:
    """Return the child job that makes the next attempt at a step, with its slice.

    Args:
        before: the child job that did a part of the step and continues; None: a new child.
    """
    next_handoff = build_handoff_id(step_id, state.steps[step_id].attempt + 1)
    job_id = before or derive_child_id(state.job_id, next_handoff)
    return Child(job_id=job_id, limits=compute_child_limits(state))


def record_child_job(state: JobState, step_id: StepId, child: Child) -> PreviousChildJob:
    """Return the record of a child job that gets a step."""
    return PreviousChildJob(
        job_id=child.job_id,
        knows=_list_dependency_results(state, step_id),
        remarks_received=len(state.steps[step_id].remarks),
    )


def find_child_to_continue(state: JobState, step_id: StepId) -> JobId | None:
    """Return the child job that only needs to fill its gaps; None if a new child does the step."""
    step = state.steps[step_id]
    if (
        step.gaps_only
        and step.child_job
        and step.child_job.knows == _list_dependency_results(state, step_id)
    ):
        return step.child_job.job_id
    return None


def _list_dependency_results(state: JobState, step_id: StepId) -> tuple[BlobRef, ...]:
    """Return the usable results of the steps that a step depends on."""
    results: list[BlobRef] = []
    for dependency in state.steps[step_id].outline.depends_on:
        step = state.steps[dependency]
        if step.is_usable and step.result:
            results.append(step.result)
    return tuple(results)


def has_gaps_alone(child: JobState) -> bool:
    """Return whether a planner made the child job's plan and some steps are missing or
    incomplete: these steps can run without a new plan.
    """
    is_planned = child.plan is not None and child.plan.degraded is None
    return is_planned and bool(child.incomplete_steps)
