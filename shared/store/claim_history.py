"""The claim history of a handoff: which process held it, and when each claim began and ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


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
        return max(0.0, (self.ended_at if self.ended_at is not None else now) - self.began_at)


def past_claims_of(fields: Mapping[bytes, bytes]) -> tuple[PastClaim, ...]:
    """Return the claims that ended without a result, in order, from a handoff's hash. The
    store keeps the newest 20.
    """
    past_claims: list[PastClaim] = []
    for line in fields.get(b"past_claims", b"").decode().splitlines():
        began_ms, ended_ms, left, worker = line.split(" ", 3)
        past_claims.append(PastClaim(worker, int(began_ms) / 1000, int(ended_ms) / 1000, left))
    return tuple(past_claims)
