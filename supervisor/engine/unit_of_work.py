"""The unit of work of one decision: the events and payloads of its commit, and the effects that run
after the commit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from handoff_queue.shared.types.events import CountedFanIn, Event, HandoffIssued
from handoff_queue.shared.types.handoff import AgentHandoff, BlobRef, make_ref
from handoff_queue.supervisor.client.handoff_publishing import OutgoingHandoff
from handoff_queue.supervisor.lifecycle.commands import Effect
from handoff_queue.supervisor.lifecycle.decide import MAX_HANDOFFS_A_DECISION

MAX_EVENTS_A_DECISION = 5_000
"""Events after which a decision ends. A reader of a part of a journal reads the rest of its batch,
which has at most `journal.MAX_BATCH_EVENTS` events.
"""


@dataclass(frozen=True, slots=True)
class RoleHandoff:
    """A handoff to one of the supervisor's own roles, and its JSON text."""

    handoff: AgentHandoff
    text: str


@dataclass(slots=True)
class UnitOfWork:
    """Events, payloads and effects of one decision."""

    events: list[Event] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    """Payloads by digest, to be stored with the commit."""
    groups: list[list[OutgoingHandoff]] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    """Commands that run after the commit."""
    role: RoleHandoff | None = None
    """Handoff of a role. At most one role works on a job at a time."""
    unreadable: set[str] = field(default_factory=set)
    """Digests of stored results that were needed and cannot be read."""

    @property
    def is_full(self) -> bool:
        """Return whether the decision issues `MAX_HANDOFFS_A_DECISION` handoffs, or has
        `MAX_EVENTS_A_DECISION` events. More may follow then.
        """
        return self.has_most_events or sum(map(len, self.groups)) >= MAX_HANDOFFS_A_DECISION

    @property
    def has_most_events(self) -> bool:
        """Return whether the decision has `MAX_EVENTS_A_DECISION` events."""
        return len(self.events) >= MAX_EVENTS_A_DECISION

    def add_payload(self, text: str) -> BlobRef:
        """Add a payload to the commit, and return its reference."""
        blob = make_ref(text)
        self.texts[blob.digest] = text
        return blob


def make_handoff_issued(
    handoff: AgentHandoff,
    ref: BlobRef,
    group: str | None = None,
    index: int = 0,
    counts: tuple[CountedFanIn, ...] = (),
    *,
    closes: bool = False,
) -> HandoffIssued:
    """Return the event that a handoff was issued.

    Args:
        ref: the stored text of the handoff.
        group: id of the handoff's chord; None: it is in no chord.
        index: place of the handoff in its chord, from 0.
        counts: fan-ins that may continue before all of their parts have ended.
        closes: True if the handoff may use the reserve for the end of the job.
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
        deadline=handoff.limits.deadline,
        max_microusd=handoff.limits.max_microusd,
        max_tokens=handoff.limits.max_tokens,
        closes=closes,
        counts=counts,
    )
