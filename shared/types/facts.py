"""Known facts: a table from the user that the claims of an answer are compared with."""

from __future__ import annotations

from handoff_queue.shared.types.handoff import Fact
from handoff_queue.shared.types.message import Message


class KnownFact(Message):
    """A known fact: subject, attribute and value, with the same parts as a claim."""

    subject: Fact
    attribute: Fact
    value: Fact
    unit: Fact | None = None
    date: Fact | None = None
    """Time for which the value is true. None: all times without a row of the same subject."""
    source: Fact
    """The user's source of the fact."""


class FactTable(Message):
    """A payload of its job: read once, where the job is submitted."""

    facts: tuple[KnownFact, ...] = ()
