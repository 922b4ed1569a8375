"""Known facts: a table from the user, with which the claims of an answer are compared."""

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
    """The known facts of a job. The client reads the user's file once and stores this payload."""

    facts: tuple[KnownFact, ...] = ()
