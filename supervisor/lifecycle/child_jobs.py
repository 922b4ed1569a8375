"""The steps that child jobs do, and the limits and the bill of the child jobs. Pure.

A plan gives such a step to `supervisor`. A separate job then does the step.

The slice of a child is its share of the parent's budget, and at most the rest of that budget.
The plan and the limits determine the share, so the largest slice is known before anything
runs. The store's budgets enforce the limits of all levels together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from handoff_queue.shared.types.budget_measures import MEASURES
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.events import Child, JobSubmitted, StepOutline
from handoff_queue.shared.types.handoff import BlobRef
from handoff_queue.shared.types.ids import JobId, StepId, build_handoff_id, derive_child_id
from handoff_queue.shared.types.limits import JobLimits, OnLimit
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST
from handoff_queue.shared.types.specialist import SpecialistSpec
from handoff_queue.shared.types.usage import NOTHING_USED, format_dollars
from handoff_queue.supervisor.lifecycle.commands import Command, IssueToChild
from handoff_queue.supervisor.lifecycle.job_budget import format_amount, reserve_for_closing_roles
from handoff_queue.supervisor.lifecycle.plan_graph import get_plan_graph
from handoff_queue.supervisor.lifecycle.state import (
    LAST_CHANCE_S,
    JobState,
    PreviousChildJob,
    get_outlines,
)

SHARES_OF_A_CHILD = 4
"""Shares of a child in its parent's budget; a step of one agent has one. A child job calls at least
a planner, two steps and an assessor.
"""
MIN_TIME_LEFT_SHARE = 0.05
"""Part of the parent's remaining time that is left after the child's end, at most
`LAST_CHANCE_S`.
"""
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


def compute_child_limits(state: JobState) -> JobLimits:
    """Return the budget of a child that begins now: its share of the budget at planning time,
    and at most the rest.
    """
    limits = state.submitted.limits
    reserved = reserve_for_closing_roles(state, ())
    shares = _count_shares(get_outlines(state.steps))

    def compute_part(limit: int | None, used: int, reserve: int = 0) -> int | None:
        """Return the child's part of a limit; None if the job has no such limit."""
        if limit is None:
            return None
        share = (limit - reserve) * SHARES_OF_A_CHILD // shares
        rest = limit - reserve - used
        return max(1, min(share, rest))

    parts: dict[str, int | None] = {}
    for measure in MEASURES:
        reserve = reserved.get(measure.kept, 0)
        parts[measure.limit] = compute_part(
            measure.get_limit(limits), measure.get_used_amount(state), reserve
        )
    on_limit = limits.on_limit
    if on_limit is OnLimit.ASK:  # a child job has no user to ask
        on_limit = OnLimit.WRAP_UP
    changes = {
        **parts,
        "max_handoffs": compute_part(limits.max_handoffs, state.handoffs),
        "max_seconds": compute_child_seconds(state, state.as_of),
        "on_limit": on_limit,
    }
    return limits.model_copy(update=changes)


def compute_first_child_limits(state: JobState) -> JobLimits:
    """Return the slice of a child that begins before the job has used anything."""
    unspent = {"turns": 0, "usage": NOTHING_USED, "handoffs": 0}
    return compute_child_limits(state.model_copy(update=unspent))


def compute_child_seconds(state: JobState, now: float) -> int:
    """Return the seconds that a child which begins now may take. Its parent needs the rest of
    the time to use the result.
    """
    left = state.working_deadline - now
    return max(1, int(left - min(LAST_CHANCE_S, MIN_TIME_LEFT_SHARE * left)))


def _count_shares(steps: Sequence[StepOutline]) -> int:
    """Return the number of shares into which a plan divides its job's budget."""
    shares = 0
    for step in steps:
        shares += SHARES_OF_A_CHILD if step.specialist == CHILD_JOB_SPECIALIST else 1
    return max(SHARES_OF_A_CHILD, shares)


def has_child_jobs(state: JobState) -> bool:
    """Return whether the plan gives any step to a child job."""
    return state.plan is not None and get_plan_graph(state.plan.steps).has_child_jobs


def describe_child_job_shortage(state: JobState, first: WorstCase) -> str:
    """Return a sentence about the limits that are too small for a child job.

    Only facts from before the first child job count. The result is '' if the limits are large
    enough, or if the plan has no child job.

    Args:
        first: upper bound of a child job's first call.
    """
    if not has_child_jobs(state):
        return ""
    limits = compute_first_child_limits(state)
    least_amounts = {"max_turns": SHARES_OF_A_CHILD, "max_handoffs": SHARES_OF_A_CHILD}
    for measure in MEASURES:
        least_amounts.setdefault(measure.limit, measure.get_worst(first))
    shortages: list[str] = []
    for name, least in least_amounts.items():
        limit = getattr(limits, name)
        if limit is not None and limit < least:
            needed = format_amount(name, least)
            shortages.append(
                f"{format_amount(name, limit)} where a child job needs room for {needed}"
            )
    if shortages:
        return (
            f"too little: {', '.join(shortages)}; the generalist tries the parts that a child job"
            " cannot do"
        )
    return ""


@dataclass(frozen=True, slots=True)
class ChildJobLayer:
    """The child jobs of one depth below a job: how many there may be, and the most that each
    may use.
    """

    depth: int
    at_most: int
    """Number of child jobs."""
    max_turns: int | None
    max_microusd: int | None


def build_bill(state: JobState) -> tuple[ChildJobLayer, ...]:
    """Return the child jobs to which the plan can lead, by depth. Empty if the plan has no
    steps for child jobs.
    """
    teams = 0
    for step in state.steps.values():
        if step.outline.specialist == CHILD_JOB_SPECIALIST:
            teams += 1
    if not teams:
        return ()
    limits = compute_first_child_limits(state)
    layers: list[ChildJobLayer] = []
    for depth in range(state.submitted.depth + 1, state.submitted.limits.max_depth + 1):
        layers.append(ChildJobLayer(depth, teams, limits.max_turns, limits.max_microusd))
        most_steps = limits.max_steps
        if limits.max_turns:
            most_steps = min(most_steps, limits.max_turns)
        teams *= most_steps
    return tuple(layers)


def format_bill(layers: Sequence[ChildJobLayer]) -> str:
    """Return the bill in one line; '' if there are no teams."""
    texts: list[str] = []
    for layer in layers:
        texts.append(_describe_layer(layer, is_first=not texts))
    return "; ".join(texts)


def _describe_layer(layer: ChildJobLayer, *, is_first: bool) -> str:
    noun = "child job" if layer.at_most == 1 else "child jobs"
    teams = f"{layer.at_most} {noun}"
    limits_in_words: list[str] = []
    if layer.max_turns:
        limits_in_words.append(f"{layer.max_turns} turns")
    if layer.max_microusd:
        limits_in_words.append(format_dollars(layer.max_microusd))
    limits = " without their own limit"
    if limits_in_words:
        limits = f" of at most {' and '.join(limits_in_words)} each"
    if is_first:
        return f"{teams}{limits}"
    return (
        f"below them, at depth {layer.depth}, {teams} at most, out of what those above them may use"
    )


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
