"""Verified usage: the sums of the signed results of a job, which its supervisor stores in Redis.

Workers count their calls in Redis, so a worker that was taken over can lower these counters. It
cannot change the signed results of other workers. So the budgets count at least these sums.
"""

from __future__ import annotations

from handoff_queue.shared.types.budget_measures import AMOUNTS
from handoff_queue.shared.types.events import HandoffFinished, HandoffIssued
from handoff_queue.shared.types.limits import MAX_COUNT, MAX_MICROUSD, BudgetLimits
from handoff_queue.shared.types.message import Message

DAY_S = 86_400
MAX_VERIFIED = MAX_MICROUSD
"""Largest sum of an amount, as in `store/lua/parts/verified_usage.lua`. No limit is larger. A
worker that was taken over may report any number.
"""

TOLERANCE = 2
"""A result counts at most this many times the limits of its handoff. The last call may exceed the
tokens of a handoff, and a provider may charge more than the upper bound of a call.
"""
MAX_MICROUSD_PER_TOKEN = 75
"""Highest price of a token of Claude models, in micro-dollars: output of Claude Opus 4.1."""
UNKNOWN_MAX_TOKENS = 10_000_000
"""Token budget if it is not known. The event of an earlier version does not have it, and an
abandoned handoff is forgotten. A handoff of 100 turns has 10 million tokens.
"""


class VerifiedUsage(Message):
    """The amounts of a job's results, in the order of `AMOUNTS`. An unknown amount counts as 0."""

    job: tuple[int, ...] = (0,) * len(AMOUNTS)
    day: int = 0
    """Day of `today`, counted from 1970 in UTC."""
    today: tuple[int, ...] = (0,) * len(AMOUNTS)
    """Amounts of the handoffs that certainly began and ended on this day."""
    since_retry: tuple[int, ...] = (0,) * len(AMOUNTS)
    """Amounts of the handoffs that began and ended since the submission or the latest retry of the
    ended job. No handoff is open at the end of a job.
    """
    busy_since: float = 0.0
    """Unix time in seconds since which the job has had open handoffs."""

    def with_result(self, event: HandoffFinished, at: float, *, is_open: bool) -> VerifiedUsage:
        """Return the verified usage with a further result.

        Args:
            at: time of the result, in Unix seconds.
            is_open: True if the handoff was open until now. Otherwise the day on which it began is
                not known.
        """
        more = tuple(amount.used(event) or 0 for amount in AMOUNTS)
        changes: dict[str, object] = {"job": _add_amounts(self.job, more)}
        if is_open:
            changes["since_retry"] = _add_amounts(self.since_retry, more)
        day = int(at // DAY_S)
        if is_open and day == int(self.busy_since // DAY_S):
            today = self.today if self.day == day else (0,) * len(AMOUNTS)
            changes |= {"day": day, "today": _add_amounts(today, more)}
        return self.model_copy(update=changes)

    def restart(self) -> VerifiedUsage:
        """Return the verified usage at the beginning of a retry."""
        return self.model_copy(update={"since_retry": NO_VERIFIED_USAGE.since_retry})


def _add_amounts(amounts: tuple[int, ...], more: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(min(MAX_VERIFIED, a + b) for a, b in zip(amounts, more, strict=True))


NO_VERIFIED_USAGE = VerifiedUsage()


def clamp_to_limits(
    event: HandoffFinished, issued: HandoffIssued | None, limits: BudgetLimits
) -> HandoffFinished:
    """Return the event of a result with at most `TOLERANCE` times the turns, tokens and money that
    the handoff and its job allow. A worker that was taken over may report any number. A supervisor
    reports the usage of roles and child jobs.

    Args:
        issued: None: the handoff was abandoned before.
    """
    if issued and (issued.child or issued.is_role_handoff):
        return event
    own_tokens = issued.max_tokens if issued else None
    own_money = issued.max_microusd if issued else None
    tokens = _find_least(limits.max_tokens, own_tokens or UNKNOWN_MAX_TOKENS)
    money = _find_least(limits.max_microusd, own_money, tokens * MAX_MICROUSD_PER_TOKEN)
    turns = _find_least(limits.max_turns, MAX_COUNT)
    most = {
        "input_tokens": TOLERANCE * tokens,
        "output_tokens": TOLERANCE * tokens,
        "cost_microusd": TOLERANCE * money,
    }
    lowered: dict[str, int] = {}
    for name, figure in most.items():
        if (getattr(event.usage, name) or 0) > figure:
            lowered[name] = figure
    if not lowered and event.turns <= TOLERANCE * turns:
        return event
    usage = event.usage.model_copy(update=lowered)
    return event.model_copy(update={"usage": usage, "turns": min(event.turns, TOLERANCE * turns)})


def _find_least(*limits: int | None) -> int:
    return min(limit for limit in limits if limit)
