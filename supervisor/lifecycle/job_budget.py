"""Effects of a spent budget, and the reserve that lets a job come to an end. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from handoff_queue.shared.types.budget_measures import MEASURES, Measure
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.handoff import StopReason
from handoff_queue.shared.types.limits import JobLimits, OnLimit
from handoff_queue.shared.types.names import CLOSING_ROLES, Role
from handoff_queue.shared.types.plan import Synthesis
from handoff_queue.shared.types.usage import NOTHING_USED
from handoff_queue.supervisor.lifecycle.review_arbitration import may_need_arbitration
from handoff_queue.supervisor.lifecycle.state import JobState

RESERVE_DIVISOR = 5
"""Divisor of the budget for the least reserve: a fifth of the tokens and of the money is for
the roles that end the job. They read all results on a capable model, and may be asked again.
"""
MAX_RESERVE_DIVISOR = 2
"""The largest reserve is the budget divided by this number. The calls of these roles can cost more
than a fifth of a small budget, and the steps need the other half.
"""


def explain_spent_budget(state: JobState) -> str:
    """Return which budget is spent, or '' if none is. A child job's share may be too small for
    one call although almost nothing is used.
    """
    limits = state.submitted.limits
    match state.spent:
        case None:
            return ""
        case StopReason.PARENT_BUDGET:
            return "the budget of the job above is spent"
        case StopReason.DAY_BUDGET:
            return "the budget of the day is spent"
        case _ if state.submitted.parent:
            return f"its share of the budget ({_describe_limits(MEASURES, limits)}) was too small"
        case _ if state.usage == NOTHING_USED:
            used = {measure.limit: measure.get_used_amount(state) for measure in MEASURES}
            budget = _describe_limits(find_spent_limits(limits, used), limits)
            return f"the job's budget ({budget}) is too small for its first call: raise it"
        case _:
            return "the job's budget is spent"


def explain_budget_decision(state: JobState) -> str:
    """Return why the job waits for its user to raise a budget, or '' if it does not wait."""
    if state.asked_at is not None and not state.ended:
        return explain_spent_budget(state)
    return ""


def list_limits_to_raise(state: JobState) -> list[str]:
    """Return the names of the limits of which one must be raised, if the job waits for that. Empty
    if it does not wait, or if the budget of a day is spent.
    """
    if not explain_budget_decision(state) or not state.spent_its_own:
        return []
    used = {measure.limit: measure.get_used_amount(state) for measure in MEASURES}
    return [measure.limit for measure in find_spent_limits(state.submitted.limits, used)]


def format_amount(name: str, value: int) -> str:
    """Return the amount of a limit of this name: `12 turns`, `$0.5`."""
    for measure in MEASURES:
        if measure.limit == name:
            return measure.text(value)
    return f"{value} {name.removeprefix('max_')}"


def find_spent_limits(limits: JobLimits, used: Mapping[str, int]) -> tuple[Measure, ...]:
    """Return the limits of which one refused a call. Pure.

    A call is one turn, so the number of turns shows whether the turns are spent. The size of the
    refused call is not known, so each other limit may have refused it.

    Args:
        used: the used amount for each limit, by its name.
    """
    set_measures = tuple(measure for measure in MEASURES if measure.get_limit(limits))
    spent: list[Measure] = []
    for measure in set_measures:
        rest = (measure.get_limit(limits) or 0) - used[measure.limit]
        if not measure.counts_calls or rest <= _get_largest_turn_reserve(limits):
            spent.append(measure)
    return tuple(spent) or set_measures


def _get_largest_turn_reserve(limits: JobLimits) -> int:
    """Return the most turns that `reserve_for_closing_roles` keeps."""
    if limits.on_limit is not OnLimit.WRAP_UP or limits.max_turns is None:
        return 0
    return (limits.max_turns - 1) // 2


def _describe_limits(measures: Sequence[Measure], limits: JobLimits) -> str:
    """Return the limits that are set, of these measures."""
    amounts: list[str] = []
    for measure in measures:
        limit = measure.get_limit(limits)
        if limit is not None:
            amounts.append(measure.text(limit))
    return ", ".join(amounts)


def list_closing_roles(state: JobState) -> tuple[str, ...]:
    """Return the roles and the fact-checker that may be called to end a job with this plan.
    Empty before there is a plan.
    """
    if state.plan is None:
        return ()
    to_be_written = (
        state.plan.synthesis is Synthesis.RECONCILE or state.submitted.answer_schema is not None
    )
    is_called = {
        Role.ASSESSOR: state.is_reviewed,
        Role.SYNTHESIZER: to_be_written and len(state.steps) > 1,
    }
    names: list[str] = [role for role in CLOSING_ROLES if is_called[role]]
    if may_need_arbitration(state):
        names.append(Role.JUDGE)
    if state.submitted.fact_checker:
        names.append(state.submitted.fact_checker)
    return tuple(names)


def reserve_for_closing_roles(state: JobState, foreseen: Sequence[WorstCase]) -> dict[str, int]:
    """Return the reserve that steps may not use: the fields `keep_turns` and so on of the job's
    hash, which `parts/budgets.lua` reads. A limit that the job does not have gets no field, and
    only a job that wraps up at its limit has a reserve.

    Args:
        foreseen: upper bound of a call of each of the `list_closing_roles`.
    """
    limits = state.submitted.limits
    turns = len(list_closing_roles(state))
    if limits.on_limit is not OnLimit.WRAP_UP or not turns:
        return {}
    reserves: dict[str, int] = {}
    for measure in MEASURES:
        limit = measure.get_limit(limits)
        if not limit:
            continue
        if measure.counts_calls:
            reserve = min(turns, (limit - 1) // 2)  # the steps get at least one
        else:
            needed_amount = sum(measure.get_worst(call) for call in foreseen)
            reserve = _reserve(needed_amount, limit)
        if reserve:
            reserves[measure.kept] = reserve
    return reserves


def _reserve(needed_amount: int, limit: int) -> int:
    """Return the part of a budget for the roles that end the job. It is the need of their calls,
    but at least a fifth and at most half of the budget.
    """
    return max(limit // RESERVE_DIVISOR, min(needed_amount, limit // MAX_RESERVE_DIVISOR))
