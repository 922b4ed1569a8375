"""What the user knows for certain: a table of facts that the claims of an answer are held against."""

from __future__ import annotations

from handoff_queue.shared.types.handoff import Fact
from handoff_queue.shared.types.message import Message


class KnownFact(Message):
    """One row: what of what has which value, in the parts that a claim has, too."""

    subject: Fact
    attribute: Fact
    value: Fact
    unit: Fact | None = None
    date: Fact | None = None
    """When it was so; None: at all times that no other row of the same matter speaks of."""
    source: Fact
    """Where the user has it from."""


class FactTable(Message):
    """A payload of its job: read once, where the job is submitted."""

    facts: tuple[KnownFact, ...] = ()
