"""What `decide` is told of the world outside the journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.wire.ids import HandoffId


@dataclass(frozen=True, slots=True)
class HandoffSeen:
    """How a handoff stands in the ledger."""

    state: str
    """issued | running | done | dropped"""
    lease_until: float | None = None
    """Unix time in seconds."""
    lost: bool = False
    """Published, never claimed, and its message is no longer in its queue."""
    queued: bool = False
    """Its message was sent to a queue. A role that was not is run where it was issued."""
    held: bool = False
    """Its role is paused, its message is a dead letter, or it waits for its provider. Whoever ends that has it found again."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the shell read outside the journal."""

    roles: frozenset[str] = frozenset()
    """Specialists that live workers announce."""
    handoffs: Mapping[HandoffId, HandoffSeen] = field(default_factory=dict)
    """Those that something may be wrong with, and every open handoff of a role."""
