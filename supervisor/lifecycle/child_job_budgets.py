"""Child jobs: their depth, their slices of the budget, and the bill of all teams. Pure.

A team, which is a separate job, does the step of a sub-supervisor.

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
from handoff_queue.shared.types.ids import JobId, StepId, child_id_for, handoff_id
from handoff_queue.shared.types.limits import JobLimits, OnLimit
from handoff_queue.shared.types.names import SUB_SUPERVISOR
from handoff_queue.shared.types.specialist import SpecialistSpec
from handoff_queue.shared.types.usage import NOTHING_USED, dollars
from handoff_queue.supervisor.lifecycle.commands import Command, IssueToChild
from handoff_queue.supervisor.lifecycle.job_budget import amount, reserve_for_closing_roles
from handoff_queue.supervisor.lifecycle.plan_graph import plan_graph_of
from handoff_queue.supervisor.lifecycle.state import (
    LAST_CHANCE_S,
    JobState,
    PreviousTeam,
    outlines_of,
)

SHARES_OF_A_CHILD = 4
"""Shares of a child in its parent's budget; a step of one agent has one. A team calls at least
a planner, two steps and an assessor.
"""
MIN_TIME_LEFT_SHARE = 0.05
"""Part of the parent's remaining time that is left after the child's end, at most
`LAST_CHANCE_S`.
"""
SPEC = SpecialistSpec(
    name=SUB_SUPERVISOR,
    description=(
        "Takes a part of the request that needs several specialists, and plans and supervises a"
        " team for it. Expensive. Not for work that one specialist can do alone."
    ),
    instructions=(
        "A sub-supervisor runs a separate job: its planner, its steps and its assessor have their"
        " own instructions."
    ),
)
"""The specialist that planners see. Its instructions are unused: the roles of the child job
have their own.
"""


def may_have_children(submitted: JobSubmitted) -> bool:
    """Return whether a step of this job may go to a sub-supervisor."""
    return submitted.depth < submitted.limits.max_depth


def for_children(state: JobState, ready: Sequence[StepId]) -> tuple[list[StepId], list[Command]]:
    """Return the steps that one agent does, and the commands that issue the other steps to
    child jobs.
    """
    of_agents: list[StepId] = []
    commands: list[Command] = []
    for step_id in ready:
        if state.steps[step_id].specialist == SUB_SUPERVISOR:
            commands.append(IssueToChild(step_id))
        else:
            of_agents.append(step_id)
    return of_agents, commands


def child_of(state: JobState, step_id: StepId, before: JobId | None) -> Child:
    """Return the child job that makes the next attempt at a step, with its slice.

    Args:
        before: the child job that did a part of the step and continues; None: a new child.
    """
    next_handoff = handoff_id(step_id, state.steps[step_id].attempt + 1)
    job_id = before or child_id_for(state.job_id, next_handoff)
    return Child(job_id=job_id, limits=child_limits(state))


def team_of(state: JobState, step_id: StepId, child: Child) -> PreviousTeam:
    """Return the record of a child job that gets a step."""
    return PreviousTeam(
        job_id=child.job_id,
        knows=_results_of_dependencies(state, step_id),
        remarks_received=len(state.steps[step_id].remarks),
    )


def team_before(state: JobState, step_id: StepId) -> JobId | None:
    """Return the child job that only needs to fill its gaps; None if a new child does the step."""
    step = state.steps[step_id]
    if step.gaps_only and step.team and step.team.knows == _results_of_dependencies(state, step_id):
        return step.team.job_id
    return None


def _results_of_dependencies(state: JobState, step_id: StepId) -> tuple[BlobRef, ...]:
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


def child_limits(state: JobState) -> JobLimits:
    """Return the budget of a child that begins now: its share of the budget at planning time,
    and at most the rest.
    """
    limits = state.submitted.limits
    reserved = reserve_for_closing_roles(state, ())
    shares = _shares(outlines_of(state.steps))

    def part(limit: int | None, used: int, reserve: int = 0) -> int | None:
        """Return the child's part of a limit; None if the job has no such limit."""
        if limit is None:
            return None
        share = (limit - reserve) * SHARES_OF_A_CHILD // shares
        rest = limit - reserve - used
        return max(1, min(share, rest))

    parts: dict[str, int | None] = {}
    for measure in MEASURES:
        reserve = reserved.get(measure.kept, 0)
        parts[measure.limit] = part(measure.of(limits), measure.used_amount(state), reserve)
    on_limit = limits.on_limit
    if on_limit is OnLimit.ASK:  # a child job has no user to ask
        on_limit = OnLimit.WRAP_UP
    changes = {
        **parts,
        "max_handoffs": part(limits.max_handoffs, state.handoffs),
        "max_seconds": seconds_for(state, state.as_of),
        "on_limit": on_limit,
    }
    return limits.model_copy(update=changes)


def seconds_for(state: JobState, now: float) -> int:
    """Return the seconds that a child which begins now may take. Its parent needs the rest of
    the time to use the result.
    """
    left = state.working_deadline - now
    return max(1, int(left - min(LAST_CHANCE_S, MIN_TIME_LEFT_SHARE * left)))


def _shares(steps: Sequence[StepOutline]) -> int:
    """Return the number of shares into which a plan divides its job's budget."""
    shares = 0
    for step in steps:
        shares += SHARES_OF_A_CHILD if step.specialist == SUB_SUPERVISOR else 1
    return max(SHARES_OF_A_CHILD, shares)


@dataclass(frozen=True, slots=True)
class TeamLayer:
    """The child jobs of one depth below a job: how many there may be, and the most that each
    may use.
    """

    depth: int
    at_most: int
    """Number of child jobs."""
    max_turns: int | None
    max_microusd: int | None


def bill_of(state: JobState) -> tuple[TeamLayer, ...]:
    """Return the child jobs to which the plan can lead, by depth. Empty if the plan has no
    steps of sub-supervisors.
    """
    teams = 0
    for step in state.steps.values():
        if step.outline.specialist == SUB_SUPERVISOR:
            teams += 1
    if not teams:
        return ()
    limits = _first_child_limits(state)
    layers: list[TeamLayer] = []
    for depth in range(state.submitted.depth + 1, state.submitted.limits.max_depth + 1):
        layers.append(TeamLayer(depth, teams, limits.max_turns, limits.max_microusd))
        most_steps = limits.max_steps
        if limits.max_turns:
            most_steps = min(most_steps, limits.max_turns)
        teams *= most_steps
    return tuple(layers)


def has_teams(state: JobState) -> bool:
    """Return whether the plan gives any step to a sub-supervisor."""
    return state.plan is not None and plan_graph_of(state.plan.steps).has_teams


def lacking(state: JobState, first: WorstCase) -> str:
    """Return a sentence about the limits that are too small for a team.

    Only facts from before the first team count. The result is '' if the limits are large
    enough, or if the plan has no teams.

    Args:
        first: upper bound of a team's first call.
    """
    if not has_teams(state):
        return ""
    limits = _first_child_limits(state)
    needed = {"max_turns": SHARES_OF_A_CHILD, "max_handoffs": SHARES_OF_A_CHILD}
    for measure in MEASURES:
        needed.setdefault(measure.limit, measure.worst(first))
    shortages: list[str] = []
    for name, least in needed.items():
        limit = getattr(limits, name)
        if limit is not None and limit < least:
            shortages.append(
                f"{amount(name, limit)} where a team needs room for {amount(name, least)}"
            )
    if shortages:
        return (
            f"too little: {', '.join(shortages)}; the generalist tries the parts that a team"
            " cannot do"
        )
    return ""


def _first_child_limits(state: JobState) -> JobLimits:
    """Return the slice of a child that begins before the job has used anything."""
    unspent = {"turns": 0, "usage": NOTHING_USED, "handoffs": 0}
    return child_limits(state.model_copy(update=unspent))


def bill_text(layers: Sequence[TeamLayer]) -> str:
    """Return the bill in one line; '' if there are no teams."""
    texts: list[str] = []
    for layer in layers:
        texts.append(_layer_text(layer, is_first=not texts))
    return "; ".join(texts)


def _layer_text(layer: TeamLayer, *, is_first: bool) -> str:
    noun = "sub-team" if layer.at_most == 1 else "sub-teams"
    teams = f"{layer.at_most} {noun}"
    limits_in_words: list[str] = []
    if layer.max_turns:
        limits_in_words.append(f"{layer.max_turns} turns")
    if layer.max_microusd:
        limits_in_words.append(dollars(layer.max_microusd))
    limits = " without their own limit"
    if limits_in_words:
        limits = f" of at most {' and '.join(limits_in_words)} each"
    if is_first:
        return f"{teams}{limits}"
    return (
        f"below them, at depth {layer.depth}, {teams} at most, out of what those above them may use"
    )
