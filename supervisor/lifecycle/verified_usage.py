"""Verified usage: the sums of the signed results of a job, which its supervisor stores in Redis.

Workers count their calls in Redis, so a worker that was taken over can lower these counters. It
cannot change the signed results of other workers. So the budgets count at least these sums.
"""

from __future__ import annotations

from handoff_queue.shared.types.budget_measures import AMOUNTS
from handoff_queue.shared.types.events import HandoffFinished
from handoff_queue.shared.types.limits import MAX_MICROUSD
from handoff_queue.shared.types.message import Message

DAY_S = 86_400
MAX_VERIFIED = MAX_MICROUSD
"""Largest sum of an amount, as in `store/lua/parts/verified_usage.lua`. No limit is larger. A
worker that was taken over may report any number.
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
        changes: dict[str, object] = {"job": _sum(self.job, more)}
        if is_open:
            changes["since_retry"] = _sum(self.since_retry, more)
        day = int(at // DAY_S)
        if is_open and day == int(self.busy_since // DAY_S):
            today = self.today if self.day == day else (0,) * len(AMOUNTS)
            changes |= {"day": day, "today": _sum(today, more)}
        return self.model_copy(update=changes)

    def after_retry(self) -> VerifiedUsage:
        """Return the verified usage at the beginning of a retry."""
        return self.model_copy(update={"since_retry": NO_VERIFIED_USAGE.since_retry})


def _sum(amounts: tuple[int, ...], more: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(min(MAX_VERIFIED, a + b) for a, b in zip(amounts, more, strict=True))


NO_VERIFIED_USAGE = VerifiedUsage()
