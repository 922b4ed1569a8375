"""The claim history of a handoff: which process held it, and when each claim began and ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from handoff_queue.shared.store.script_arguments import figure_in, name_in
from handoff_queue.shared.types.message import LATEST_TIME_S


class ClaimEnd(StrEnum):
    """Reason why a claim ended without a result."""

    LOST = "lost"
    """The process died."""
    RELEASED = "released"
    """The claim was handed back, because its process shuts down."""
    DEFERRED = "deferred"
    """The handoff was deferred until the rate limits of its provider allow a call."""
    PAUSED = "paused"
    """The role was paused."""
    ASKED = "asked"
    """The handoff waits for a person's approval of a tool call."""


@dataclass(frozen=True, slots=True)
class PastClaim:
    """A claim of a handoff. Times are Unix seconds."""

    worker: str
    began_at: float
    ended_at: float | None
    """End of the claim, or None while it holds. A lost claim ends at its last heartbeat."""
    left: str = ""
    """A `ClaimEnd`; empty if the claim holds or has ended with a result."""

    def lasted_s(self, now: float) -> float:
        """Return the duration in seconds, up to `now` for an open claim."""
        end = now if self.ended_at is None else self.ended_at
        return max(0.0, end - self.began_at)


def past_claims_of(fields: Mapping[bytes, bytes]) -> tuple[PastClaim, ...]:
    """Return the claims that ended without a result, in order, from a handoff's hash. The
    store keeps the newest 20. A line that a worker wrote in another form is left out.
    """
    past_claims: list[PastClaim] = []
    for line in name_in(fields.get(b"past_claims", b"")).splitlines():
        began_ms, _, rest = line.partition(" ")
        ended_ms, _, rest = rest.partition(" ")
        left, _, worker = rest.partition(" ")
        began = figure_in(began_ms.encode())
        ended = figure_in(ended_ms.encode())
        if began is None or ended is None:
            continue
        if min(began, ended) < 0 or max(began, ended) > 1000 * LATEST_TIME_S:
            continue
        past_claims.append(PastClaim(worker, began / 1000, ended / 1000, left))
    return tuple(past_claims)
