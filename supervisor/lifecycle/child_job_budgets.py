"""The slices of child jobs: their shares of the parent's budget. Pure.

The slice of a child is its share of the parent's budget, and at most the rest of that budget.
The plan and the limits determine the share, so the largest slice is known before anything
runs. The store's budgets enforce the limits of all levels together.
"""

from __future__ import annotations

from collections.abc import Sequence

from handoff_queue.shared.types.budget_measures import MEASURES
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.events import StepOutline
from handoff_queue.shared.types.limits import JobLimits, OnLimit
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST
from handoff_queue.shared.types.usage import NOTHING_USED
from handoff_queue.supervisor.lifecycle.job_budget import format_amount, reserve_for_closing_roles
from handoff_queue.supervisor.lifecycle.plan_graph import get_plan_graph
from handoff_queue.supervisor.lifecycle.state import LAST_CHANCE_S, JobState, get_outlines

SHARES_OF_A_CHILD = 4
"""Shares of a child in its parent's budget; a step of one agent has one. A child job calls at least
a planner, two steps and an assessor.
"""
MIN_TIME_LEFT_SHARE = 0.05
"""Part of the parent's remaining time that is left after the child's end, at most
`LAST_CHANCE_S`.
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
