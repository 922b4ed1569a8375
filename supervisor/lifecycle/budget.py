"""What a spent budget means to a job, and what is kept of one so that the job can come to an end. Pure."""

from __future__ import annotations

from shared.wire.handoff import StopReason
from shared.wire.limits import OnLimit
from shared.wire.plan import Synthesis
from supervisor.lifecycle.state import JobState

KEPT_PART = 5
"""A fifth of tokens and money is kept for the assessor and the synthesizer: they read what all steps have written, on a capable model. By
the bytes, the most that their calls can use is some four times what they use, so that a smaller part would often not be let through."""


def why_spent(spent: StopReason) -> str:
    """In words of our own."""
    return "the budget of the day is spent" if spent is StopReason.DAY_BUDGET else "the job's budget is spent"


def why_asked(state: JobState) -> str:
    """Why the job waits for a decision of its user; empty: it does not."""
    return why_spent(state.spent) if state.asked and state.spent and not state.ended else ""


def kept_back(state: JobState) -> dict[str, int]:
    """What steps may not use of the job's budget: `keep_turns`, `keep_tokens`, `keep_usd` of its hash, which `books.lua` reads."""
    limits = state.submitted.limits
    if limits.on_limit is not OnLimit.WRAP_UP or state.plan is None:
        return {}
    to_be_written = state.plan.synthesis is Synthesis.RECONCILE or state.submitted.answer_schema is not None
    turns = 2 if to_be_written and len(state.steps) > 1 else 1
    kept = {
        "keep_turns": limits.max_turns and min(turns, max(0, limits.max_turns - 1) // 2),  # the steps get one at least
        "keep_tokens": limits.max_tokens and limits.max_tokens // KEPT_PART,
        "keep_usd": limits.max_microusd and limits.max_microusd // KEPT_PART,
    }
    return {name: value for name, value in kept.items() if value}
