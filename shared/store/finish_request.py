"""The request that ends a handoff with a result, and the reply of `parts/results.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from handoff_queue.shared.store.journal import with_versions
from handoff_queue.shared.types.events import Event, Recorded
from handoff_queue.shared.types.handoff import ResultStatus

CHORD_SILENCE_S = 3.0
"""Seconds that the body of a chord may take after the last part has ended. Then the sweeper
wakes the job.
"""
URGENT = (ResultStatus.FAILED, ResultStatus.NEEDS_INPUT)
"""Statuses that wake the supervisor at once, before the other parts of the chord end."""


@dataclass(frozen=True, slots=True)
class FinishReply:
    """Reply of the store after a handoff has ended."""

    parts_left: int
    """Handoffs of its group that have not ended; -1 if it has no group."""
    wakes: bool
    """True if the supervisor is woken now, before the group ends."""
    recorded: tuple[Recorded, ...]
    """The events of the end, with their versions in the journal."""


@dataclass(frozen=True, slots=True)
class FinishRequest:
    """Request to end a handoff with a result and its events. The store applies a request that
    is sent twice once.
    """

    events: Sequence[Event]
    order: Sequence[Any]
    """Arguments of `finish` in `parts/results.lua`."""

    def finished(self, answer: Sequence[Any]) -> FinishReply:
        """Return the reply for the script's answer, which is not a refusal."""
        _, parts_left, version, at_ms, wakes = answer
        return FinishReply(
            int(parts_left),
            bool(wakes),
            tuple(with_versions(self.events, int(version), int(at_ms) / 1000)),
        )
