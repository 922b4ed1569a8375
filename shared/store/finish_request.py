"""The request that ends a handoff with a result, and the reply of `parts/results.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from handoff_queue.shared.store.journal import in_place
from handoff_queue.shared.types.events import Event, Recorded
from handoff_queue.shared.types.handoff import ResultStatus

CHORD_SILENCE_S = 3.0
"""All parts of a chord are done, and its body has not come: the sweeper looks."""
URGENT = (ResultStatus.FAILED, ResultStatus.NEEDS_INPUT)
"""Statuses that wake the supervisor at once, before the other parts of the chord end."""


@dataclass(frozen=True, slots=True)
class FinishReply:
    """A handoff's end, as it stands in the journal."""

    parts_left: int
    """Handoffs of its group that have not ended; -1 if it has no group."""
    wakes: bool
    """True if the supervisor is woken now, before the group ends."""
    recorded: tuple[Recorded, ...]


@dataclass(frozen=True, slots=True)
class FinishRequest:
    """A result under a claim, and the events that enter the journal with it; not yet told to
    the store. Made once: said again, it is the same.
    """

    events: Sequence[Event]
    order: Sequence[Any]
    """Keys and arguments of the script."""

    def finished(self, answer: Sequence[Any]) -> FinishReply:
        """Return the reply for the script's answer.

        Raises:
            Interrupted: the script refused the request.
        """
        _, parts_left, version, at_ms, wakes = answer
        return FinishReply(
            int(parts_left),
            bool(wakes),
            tuple(in_place(self.events, int(version), int(at_ms) / 1000)),
        )
