"""Observations for `decide`: facts from outside the journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from handoff_queue.shared.types.ids import HandoffId


@dataclass(frozen=True, slots=True)
class ObservedHandoff:
    """State of a handoff in the store."""

    state: str
    """issued | running | done | dropped"""
    lease_until: float | None = None
    """Unix time in seconds."""
    lost: bool = False
    """True if it was published and never claimed, and its message is no longer in its queue."""
    queued: bool = False
    """True if its message was sent to a queue. A role without a message runs in the supervisor
    that issued it.
    """
    waits: bool = False
    """True if it has no message: it is paused or deferred, or its message is a dead letter. The
    sweeper finds the handoff again after that.
    """


@dataclass(frozen=True, slots=True)
class SpecialistLoad:
    """Load of a specialist."""

    capability: str
    queued: int
    """Handoffs that wait in its queue."""
    slots: int
    """Handoffs that its live workers run at the same time."""

    @property
    def busy(self) -> float:
        """Return the number of waiting handoffs for each slot."""
        return self.queued / max(1, self.slots)


@dataclass(frozen=True, slots=True)
class Observations:
    """Facts that the shell read outside the journal."""

    specialists: frozenset[str] = frozenset()
    """Specialists that live workers announce."""
    handoffs: Mapping[HandoffId, ObservedHandoff] = field(default_factory=dict)
    """Handoffs that may need a repair, and every open handoff of a role."""
    loads: Mapping[str, SpecialistLoad] = field(default_factory=dict)
    """Load of the specialists that another specialist could replace."""
    acting: frozenset[str] = frozenset()
    """Specialists that have a tool or a task with effects."""
    is_fact_checker_away: bool = False
    """True if no live worker announces the fact-checker."""
    refused_queues: frozenset[str] = frozenset()
    """Specialists whose queue the Redis user of the supervisors may not use."""

    def list_able_specialists(self, specialist: str) -> tuple[str, ...]:
        """Return the other specialists with the same capability, the least busy first."""
        own_load = self.loads.get(specialist)
        if own_load is None:
            return ()
        others: list[tuple[float, str]] = []
        for name, load in self.loads.items():
            if load.capability == own_load.capability and name != specialist:
                others.append((load.busy, name))
        return tuple(name for _, name in sorted(others))
