"""Model calls that no job needs, and their permitted reasons. These are calls in flight at a
strike, lost claims, and periods in which no job needs a call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

from handoff_queue.chaos.expected_outcomes import StoredJob
from handoff_queue.chaos.faults import EVERYBODY, Fault, Strike
from handoff_queue.chaos.model_server import Call
from handoff_queue.chaos.planned_jobs import CallKey, PlannedJob
from handoff_queue.shared.store.claim_requests import MAX_CLAIMS

STORED_WITHIN_S = 2.0
"""Longest assumed time in seconds from the last byte of an answer until the store has the
answer. It is shorter than a lease.

Measured on two cores, when every reply was stored at once. A short last reply without quotes is now
stored with its result, milliseconds later. On an idle machine: of 588 calls, half within 2 ms, the
slowest 82 ms. With a load of twelve: of 274, half within 59 ms, 99 of 100 within 0.5 s, the slowest
0.74 s. With a load of 28 a process was killed after 1.3 s and had not stored its reply. If the
store was seen with an answer, that time counts instead.
"""


@dataclass(frozen=True)
class CallsInFlight:
    """The calls in flight at each strike."""

    calls: Sequence[Call]
    strikes: Sequence[Strike]
    settled_at: Mapping[CallKey, float]
    """First time at which the store was known to have the reply to a call."""

    def was_in_flight(self, call: Call, strike: Strike) -> bool:
        """Return whether this call was in flight in the struck process, so that it may have to
        be repeated.
        """
        is_in_time = call.at <= strike.until + strike.outage_s and strike.at <= self._find_end[call]
        return (
            is_in_time
            and strike.hits(call.process)
            and strike.at < self.settled_at.get(call.key, inf)
        )

    @cached_property
    def most_repeated(self) -> int:
        """Largest permitted number of repeated calls: each call that was in flight at a strike
        may be repeated once. A lost answer hits at most one call.
        """
        hit: set[Call] = set()
        for call in self.calls:
            strikes = self._strikes_on[call.process]
            if any(
                self.was_in_flight(call, hit_by)
                for hit_by in strikes
                if hit_by.fault is not Fault.DROP
            ):
                hit.add(call)
        others = []
        for call in self.calls:
            if call not in hit:
                others.append(call)
        total = len(hit)
        for strike in self.strikes:
            if strike.fault is Fault.DROP:
                total += any(self.was_in_flight(call, strike) for call in others)
        return total

    def is_too_late(self, call: Call) -> bool:
        """Return whether the store had the answer before the call, and the caller could know
        that. A caller that was stopped just before the call could not.
        """
        settled_at = self.settled_at.get(call.key, inf)
        return settled_at < call.at and not self.is_held_back(call, settled_at)

    def is_held_back(self, call: Call, since: float) -> bool:
        """Return whether a stop held back the caller between `since` and this call."""
        return any(self.has_held_back(strike, call, since) for strike in self.strikes)

    def has_held_back(self, strike: Strike, call: Call, since: float) -> bool:
        """Return whether this strike stopped the caller before `since`, and the caller made
        the call when it continued.
        """
        return (
            strike.fault is Fault.STOP
            and strike.hits(call.process)
            and strike.at <= since
            and call.at <= strike.until
        )

    @cached_property
    def _strikes_on(self) -> dict[str, list[Strike]]:
        """Strikes that hit each caller, in order."""
        in_order = sorted(self.strikes, key=lambda strike: strike.at)
        strikes_on: dict[str, list[Strike]] = {}
        for caller in {call.process for call in self.calls}:
            strikes_on[caller] = [strike for strike in in_order if strike.hits(caller)]
        return strikes_on

    @cached_property
    def _find_end(self) -> dict[Call, float]:
        """Time until which each call is in flight."""
        times: dict[Call, float] = {}
        for call in self.calls:
            times[call] = _find_end(call, self._strikes_on[call.process])
        return times


def _find_end(call: Call, strikes: Sequence[Strike]) -> float:
    """Return the time until which a call is in flight. A kill ends it. A process that is
    stopped, or that cannot reach Redis, stores its answers afterwards.

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
class SeenClaim:
    """A claim that was seen in the store. A claim of a dead process stays until its lease
    expires.
    """

    process: str
    """Name of the process that held the claim."""
    count: int
    """Position of the claim in a row of claims without progress in the same turn, from 1."""
    at: float
    """Time at which the claim was first seen, in Unix seconds."""


def count_strikes(
    claims_seen: Sequence[SeenClaim], strikes: Sequence[Strike], finished_at: float
) -> int:
    """Return how many of the last `MAX_CLAIMS` claims of a handoff were lost by strikes. Each
    strike counts for one claim.

    Args:
        claims_seen: the claims in order.
        finished_at: Unix seconds. Later claims do not count.
    """
    claims = _find_last_row(claims_seen, finished_at)
    used_strikes: set[Strike] = set()
    for number, claim in enumerate(claims):
        earlier, later = -inf, finished_at
        if number > 0:
            earlier = claims[number - 1].at
        if number + 1 < len(claims):
            later = claims[number + 1].at
        for strike in sorted(strikes, key=lambda strike: strike.at):
            is_in_time = strike.at <= later and strike.until + strike.outage_s >= earlier
            if is_in_time and strike not in used_strikes and strike.hits(claim.process):
                used_strikes.add(strike)
                break
    return len(used_strikes)


def _find_last_row(claims_seen: Sequence[SeenClaim], finished_at: float) -> list[SeenClaim]:
    """Return the last row of claims without progress, in the order of their counts.

    The next claim after a claim that was handed back has the same count, and replaces it.
    """
    row: dict[int, SeenClaim] = {}
    for claim in claims_seen:
        if claim.at > finished_at:
            continue
        if claim.count == 1:
            row.clear()
        row[claim.count] = claim
    claims: list[SeenClaim] = []
    for count in range(1, MAX_CLAIMS + 1):
        if count in row:
            claims.append(row[count])
    return claims


SENT_WITHIN_S = STORED_WITHIN_S
"""Longest assumed time in seconds from the store's permission for a call until the model's
server has read the call. Measured on two cores with a load of twelve: 0.6 s.
"""


@dataclass(frozen=True)
class UnneededPeriods:
    """The periods in which no job needs a call."""

    jobs: Mapping[str, PlannedJob]
    job_records: Mapping[str, StoredJob]

    def find_time_without_need(self, key: CallKey, at: float) -> float | None:
        """Return the time since which no job needs a call that arrived at `at`. Return None if
        a job needs the call, or may have needed it when it was sent.
        """
        begins: list[float] = []
        for begin, end in self._find_periods_without_need(key.job, key.handoff):
            if begin + SENT_WITHIN_S < at < end:
                begins.append(begin)
        return min(begins, default=None)

    def _find_periods_without_need(self, name: str, handoff: str) -> Iterator[tuple[float, float]]:
        """Yield the periods in which no job needs calls of a handoff, as (begin, end)."""
        job, job_record = self.jobs.get(name), self.job_records.get(name)
        if job is None or job_record is None:
            return
        for at in (
            *job_record.ended_at,
            job_record.cancelled_at,
            job_record.given_up_at.get(handoff),
        ):
            if at is not None:
                yield at, inf
        yield from job_record.question_periods
        if job.parent:
            yield from self._find_periods_without_need(
                job.parent, f"{name.removeprefix(job.parent)[1:]}.1"
            )
