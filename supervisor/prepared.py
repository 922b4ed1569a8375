"""One decision, ready to be committed and then carried out."""

from __future__ import annotations

from dataclasses import dataclass, field

from shared.wire.events import Event
from shared.wire.handoff import AgentHandoff, BlobRef, ref
from supervisor.dispatch import Outgoing
from supervisor.lifecycle.commands import Command


@dataclass(frozen=True, slots=True)
class RoleHandoff:
    """A handoff to one of the supervisor's own roles, and its bytes."""

    handoff: AgentHandoff
    text: str


@dataclass(slots=True)
class Prepared:
    """One decision, ready to be committed and then carried out."""

    events: list[Event] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    """Payloads by digest, to be stored with the commit."""
    groups: list[list[Outgoing]] = field(default_factory=list)
    effects: list[Command] = field(default_factory=list)
    """What is done after the commit, and not recorded itself."""
    role: RoleHandoff | None = None
    """At most one role at a time is at work on a job."""

    def ref(self, text: str) -> BlobRef:
        """Have this payload stored with the commit."""
        made = ref(text)
        self.texts[made.digest] = text
        return made
