"""Whether a handoff that was given up was struck as often as that takes: each of its last claims by a strike of its own. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from handoff_queue.chaos.faults import Strike
from handoff_queue.shared.store.claims import MAX_CLAIMS


@dataclass(frozen=True, slots=True)
class Held:
    """A claim, as it was first seen in the ledger. One that was struck stands there until its lease is over."""

    process: str
    count: int
    """Of the claims in a row in which the handoff got no further in its turn: this is so many."""
    at: float
    """Unix seconds."""


def strikes_at(held: Sequence[Held], strikes: Sequence[Strike], finished_at: float) -> int:
    """How many of the last `MAX_CLAIMS` claims of a handoff were taken down, each by another strike. `held`: in order."""
    before = [one for one in held if one.at <= finished_at]
    in_a_row = {
        one.count: one for one in before[_last_first(before) :]
    }  # one that was handed back does not count: another took its number
    counted = [in_a_row[count] for count in range(1, MAX_CLAIMS + 1) if count in in_a_row]
    used = set[Strike]()
    seen_at = [-inf, *(one.at for one in counted), finished_at]
    for one, (earlier, _), (_, later) in zip(
        counted, pairwise(seen_at[:-1]), pairwise(seen_at[1:]), strict=True
    ):
        found = (strike for strike in strikes if strike not in used and strike.hits(one.process))
        ends = [
            strike
            for strike in found
            if strike.at <= later and strike.until + strike.outage_s >= earlier
        ]
        used |= set(sorted(ends, key=lambda strike: strike.at)[:1])
    return len(used)


def _last_first(held: Sequence[Held]) -> int:
    """Where the last row of claims begins: it got further before that."""
    return max((number for number, one in enumerate(held) if one.count == 1), default=0)
