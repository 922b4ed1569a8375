"""Model calls that no job needs: in flight at a kill, repeated, or of a struck claim."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import inf

from handoff_queue.chaos.expected_outcomes import Story
from handoff_queue.chaos.model import Call
from handoff_queue.chaos.plan import CallKey, PlannedJob
from handoff_queue.chaos.strikes import EVERYBODY, Fault, Strike
from handoff_queue.shared.store.claims import MAX_CLAIMS

STORED_WITHIN_S = 2.0
"""Seconds from an answer's last byte until the store has it, less than a lease.

Measured on two cores, when every reply was stored at once. A short last reply without quotes is now
stored with its result, milliseconds later. On an idle machine: of 588 calls, half within 2 ms, the
slowest 82 ms. With a load of twelve: of 274, half within 59 ms, 99 of 100 within 0.5 s, the slowest
0.74 s. With a load of 28 a process was killed after 1.3 s and had not stored its reply. If the
store was seen with an answer, that time counts instead.
"""


@dataclass(frozen=True)
class Air:
    """A call in flight. `settled_at`: time at which the store was seen with its result."""

    calls: Sequence[Call]
    strikes: Sequence[Strike]
    settled_at: Mapping[CallKey, float]

    def had(self, call: Call, strike: Strike) -> bool:
        """Return whether this call was in flight in the struck process, so that it may have to be
        repeated.
        """
        is_in_time = call.at <= strike.until + strike.outage_s and strike.at <= self._until[call]
        return (
            is_in_time
            and strike.hits(call.process)
            and strike.at < self.settled_at.get(call.key, inf)
        )

    @cached_property
    def most_repeated(self) -> int:
        """Calls that were in the air at any strike: each may be made once more. One lost
        answer is one call.
        """
        hit = {
            call for call in self.calls if any(self.had(call, strike) for strike in self._others)
        }
        drops = [strike for strike in self.strikes if strike.fault is Fault.DROP]
        return len(hit) + sum(
            any(self.had(call, strike) for call in self.calls if call not in hit)
            for strike in drops
        )

    def is_too_late(self, call: Call) -> bool:
        """Return whether the store had the answer already, and the caller could know it. A caller
        that was stopped just before the call could not.
        """
        settled_at = self.settled_at.get(call.key, inf)
        return settled_at < call.at and not any(
            self.has_held_back(strike, call, settled_at) for strike in self.strikes
        )

    def has_held_back(self, strike: Strike, call: Call, since: float) -> bool:
        """Return whether the caller was stopped just before this call, and made it after waking up."""
        return (
            strike.fault is Fault.STOP
            and strike.hits(call.process)
            and strike.at <= since
            and call.at <= strike.until
        )

    @cached_property
    def _others(self) -> list[Strike]:
        others: list[Strike] = []
        for strike in self.strikes:
            if strike.fault is not Fault.DROP:
                others.append(strike)
        return others

    @cached_property
    def _until(self) -> dict[Call, float]:
        in_order = sorted(self.strikes, key=lambda strike: strike.at)
        by_call: dict[Call, float] = {}
        for call in self.calls:
            by_call[call] = _until(
                call, [strike for strike in in_order if strike.hits(call.process)]
            )
        return by_call


def _until(call: Call, strikes: Sequence[Strike]) -> float:
    """Return the time until which a call is in flight. A kill ends it. A process that is stopped,
    or without Redis, stores its answers afterwards.

    Args:
        strikes: the strikes on the caller, in order.
    """
    if call.out_at is None:
        until = inf
    else:
        until = call.out_at + (STORED_WITHIN_S if call.was_heard else 0.0)
    for strike in strikes:
        if strike.at > until:
            break
        over = strike.at + strike.lasts_s + strike.outage_s
        if strike.fault.is_kill and strike.target != EVERYBODY and call.at <= strike.until:
            return max(call.at, strike.at)
        if over > strike.at and call.at <= over and call.was_heard:
            until = max(until, over + STORED_WITHIN_S)
    return until


@dataclass(frozen=True, slots=True)
class Held:
    """A claim, as it was first seen in the store. A struck claim stays until its lease is over."""

    process: str
    count: int
    """Position of the claim in a row of claims without progress in the same turn."""
    at: float
    """Unix seconds."""


def strikes_at(held: Sequence[Held], strikes: Sequence[Strike], finished_at: float) -> int:
    """Return how many of the last `MAX_CLAIMS` claims of a handoff were lost, each by another
    strike.

    Args:
        held: the claims in order.
    """
    before = [claim for claim in held if claim.at <= finished_at]
    in_a_row = {
        claim.count: claim for claim in before[_last_first(before) :]
    }  # a claim that was handed back does not count: another claim took its number
    counted: list[Held] = []
    for count in range(1, MAX_CLAIMS + 1):
        if count in in_a_row:
            counted.append(in_a_row[count])
    used = set[Strike]()
    seen_at = [-inf, *(claim.at for claim in counted), finished_at]
    for claim, (earlier, _), (_, later) in zip(
        counted, pairwise(seen_at[:-1]), pairwise(seen_at[1:]), strict=True
    ):
        hits = (strike for strike in strikes if strike not in used and strike.hits(claim.process))
        ends = [
            strike
            for strike in hits
            if strike.at <= later and strike.until + strike.outage_s >= earlier
        ]
        used |= set(sorted(ends, key=lambda strike: strike.at)[:1])
    return len(used)


def _last_first(held: Sequence[Held]) -> int:
    """Return the start of the last row of claims without progress."""
    return max((number for number, claim in enumerate(held) if claim.count == 1), default=0)


SENT_WITHIN_S = STORED_WITHIN_S
"""Seconds from the store's permission until the model's server has read the call. Measured on two
cores with a load of twelve: 0.6 s.
"""


@dataclass(frozen=True)
class Quiet:
    """Periods without need for a call, by job's name."""

    jobs: Mapping[str, PlannedJob]
    stories: Mapping[str, Story]

    def since(self, key: CallKey, at: float) -> float | None:
        """Return since when no job needs a call that arrived at this time; None if a job needs it,
        or needed it when it was sent.
        """
        return min(
            (
                begin
                for begin, end in self._times(key.job, key.handoff)
                if begin + SENT_WITHIN_S < at < end
            ),
            default=None,
        )

    def _times(self, name: str, handoff: str) -> Iterator[tuple[float, float]]:
        """Yield periods as (start, end)."""
        job, story = self.jobs.get(name), self.stories.get(name)
        if job is None or story is None:
            return
        for at in (*story.ended_at, story.cancelled_at, story.given_up_at.get(handoff)):
            if at is not None:
                yield at, float("inf")
        yield from story.asked
        if job.parent:
            yield from self._times(job.parent, f"{name.removeprefix(job.parent)[1:]}.1")
