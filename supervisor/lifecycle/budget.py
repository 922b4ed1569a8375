"""Effects of a spent budget, and the reserve that lets a job come to an end. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.handoff import StopReason
from handoff_queue.shared.types.limits import JobLimits, OnLimit
from handoff_queue.shared.types.names import CLOSING_ROLES
from handoff_queue.shared.types.plan import Synthesis
from handoff_queue.shared.types.usage import cost_usd
from handoff_queue.supervisor.lifecycle.arbitration import may_quarrel
from handoff_queue.supervisor.lifecycle.disputes import JUDGE
from handoff_queue.supervisor.lifecycle.state import JobState

KEPT_PART = 5
"""Divisor of the reserve: at least a fifth of tokens and money is for the assessor and the
synthesizer. They read all results on a capable model, and may be asked again.
"""
MOST_KEPT_PART = 2
"""Half, at the most, where their calls can cost more than that fifth: a review of next to no
work would be worth nothing either.
"""


def why_spent(state: JobState) -> str:
    """Return why the budget is spent, or '' if it is not. A team's slice may be too small for one
    call although almost nothing is used.
    """
    match state.spent:
        case None:
            return ""
        case StopReason.PARENT_BUDGET:
            return "the budget of the job above is spent"
        case StopReason.DAY_BUDGET:
            return "the budget of the day is spent"
        case _ if state.submitted.parent:
            return f"its share of the budget ({_all_of(state.submitted.limits)}) was too small"
        case _:
            return "the job's budget is spent"


def reason_for_decision(state: JobState) -> str:
    """Return why the job waits for a decision of its user, or '' if it does not."""
    if state.asked_at is not None and not state.ended:
        return why_spent(state)
    return ""


def amount(name: str, value: int) -> str:
    """Return the amount of a limit of this name: `12 turns`, `$0.5`."""
    if name == "max_microusd":
        return f"${cost_usd(value):.6g}"
    return f"{value} {name.removeprefix('max_')}"


def _all_of(limits: JobLimits) -> str:
    names = ("max_turns", "max_tokens", "max_microusd")
    return ", ".join(
        amount(name, most) for name in names if (most := getattr(limits, name)) is not None
    )


def closers(state: JobState) -> tuple[str, ...]:
    """Return the roles and the fact-checker that end a job with this plan, each with at least one
    call. Empty before there is a plan.
    """
    if state.plan is None:
        return ()
    checker = state.submitted.fact_checker
    to_be_written = (
        state.plan.synthesis is Synthesis.RECONCILE or state.submitted.answer_schema is not None
    )
    is_called = {
        "assessor": state.is_reviewed,
        "synthesizer": to_be_written and len(state.steps) > 1,
    }
    return (
        *(role for role in CLOSING_ROLES if is_called[role]),
        *((JUDGE,) if may_quarrel(state) else ()),
        *((checker,) if checker else ()),
    )


def reserved_budget(state: JobState, foreseen: Sequence[WorstCase]) -> dict[str, int]:
    """Return the reserve that steps may not use: the fields `keep_turns`, `keep_tokens`, `keep_usd`
    of the job's hash, which `parts/budgets.lua` reads.

    Args:
        foreseen: upper bound of a call of each of the `closers`.
    """
    limits, turns = state.submitted.limits, len(closers(state))
    if limits.on_limit is not OnLimit.WRAP_UP or not turns:
        return {}
    tokens = sum(call.input_tokens + call.output_tokens for call in foreseen)
    kept = {
        "keep_turns": limits.max_turns
        and min(turns, max(0, limits.max_turns - 1) // 2),  # the steps get one at least
        "keep_tokens": limits.max_tokens and _part_for(tokens, limits.max_tokens),
        "keep_usd": limits.max_microusd
        and _part_for(sum(call.microusd or 0 for call in foreseen), limits.max_microusd),
    }
    values: dict[str, int] = {}
    for name, value in kept.items():
        if value:
            values[name] = value
    return values


def _part_for(needed: int, most: int) -> int:
    return max(most // KEPT_PART, min(needed, most // MOST_KEPT_PART))
