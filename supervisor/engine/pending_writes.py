"""The writes of one decision, ready for the commit, and its effects after the commit."""

from __future__ import annotations

from dataclasses import dataclass, field

from handoff_queue.shared.types.events import Counted, Event, HandoffIssued
from handoff_queue.shared.types.handoff import AgentHandoff, BlobRef, ref
from handoff_queue.supervisor.client.dispatch import OutgoingHandoff
from handoff_queue.supervisor.lifecycle.commands import Command
from handoff_queue.supervisor.lifecycle.decide import MOST_IN_A_SLICE


@dataclass(frozen=True, slots=True)
class RoleHandoff:
    """A handoff to one of the supervisor's own roles, and its bytes."""

    handoff: AgentHandoff
    text: str


@dataclass(slots=True)
class PendingWrites:
    """Events, payloads and effects of one decision."""

    events: list[Event] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    """Payloads by digest, to be stored with the commit."""
    groups: list[list[OutgoingHandoff]] = field(default_factory=list)
    effects: list[Command] = field(default_factory=list)
    """Commands that run after the commit and are not recorded."""
    role: RoleHandoff | None = None
    """Handoff of a role. At most one role at a time works on a job."""
    unreadable: set[str] = field(default_factory=set)
    """Digests of stored results that were needed and cannot be read."""

    @property
    def is_full(self) -> bool:
        """Return whether the slice is full. There may be more handoffs to issue."""
        return sum(map(len, self.groups)) >= MOST_IN_A_SLICE

    def ref(self, text: str) -> BlobRef:
        """Have this payload stored with the commit."""
        made = ref(text)
        self.texts[made.digest] = text
        return made


def issued_event(
    handoff: AgentHandoff,
    ref: BlobRef,
    group: str | None = None,
    index: int = 0,
    size: int = 0,
    counts: tuple[Counted, ...] = (),
    *,
    closes: bool = False,
) -> HandoffIssued:
    """Return the event of a handoff in these payloads.

    Args:
        size: size of its group.
    """
    return HandoffIssued(
        handoff_id=handoff.handoff_id,
        step_id=handoff.step_id,
        attempt=handoff.attempt,
        assigned_to=handoff.assigned_to,
        handoff=ref,
        specialist=handoff.specialist,
        group=group,
        index=index,
        group_size=size,
        deadline=handoff.limits.deadline,
        max_microusd=handoff.limits.max_microusd,
        closes=closes,
        counts=counts,
    )
