"""Who has had a handoff, and when: a claim from its beginning to its end, however it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class ClaimEnd(StrEnum):
    """How a claim ended without a result."""

    LOST = "lost"
    """With its process."""
    BACK = "back"
    """Handed back, because its process was told to end."""
    THROTTLED = "throttled"
    """Given up until the rate limits of its provider allow a call."""
    HELD = "held"
    """Its role was paused."""


@dataclass(frozen=True, slots=True)
class PastClaim:
    """One claim. Times are Unix seconds."""

    worker: str
    began_at: float
    ended_at: float | None
    """Of one that was lost: when it was heard of for the last time. None: it holds."""
    left: str = ""
    """See `ClaimEnd`; empty: it holds, or has ended with a result."""

    def lasted_s(self, now: float) -> float:
        """So far."""
        return max(0.0, (self.ended_at if self.ended_at is not None else now) - self.began_at)


def stints_of(fields: Mapping[bytes, bytes]) -> tuple[PastClaim, ...]:
    """Those that have ended without a result, out of a handoff's hash, in order; at most the
    newest 20. A version before this one noted the last loss alone.
    """
    lines = [line.split(" ", 3) for line in fields.get(b"stints", b"").decode().splitlines()]
    if not lines and b"lost_at" in fields:
        began, ended = fields.get(b"started_at", fields[b"lost_at"]), fields[b"lost_at"]
        lines = [
            [
                began.decode(),
                ended.decode(),
                ClaimEnd.LOST,
                fields.get(b"lost_worker", b"").decode(),
            ]
        ]
    return tuple(
        PastClaim(worker, int(began_ms) / 1000, int(ended_ms) / 1000, left)
        for began_ms, ended_ms, left, worker in lines
    )
