"""What is looked into when claims, or a writer and a reviewer, disagree. `shared.types.step_events` has what else happens to steps."""

from __future__ import annotations

from typing import Literal

from pydantic import NonNegativeInt

from handoff_queue.shared.types.conflicts import ConflictId
from handoff_queue.shared.types.handoff import BlobRef, ClaimId
from handoff_queue.shared.types.ids import StepIdField
from handoff_queue.shared.types.message import Message


class ConflictsFound(Message):
    """Code has held the claims of all steps against each other."""

    type: Literal["conflicts_found"] = "conflicts_found"
    conflicts: tuple[tuple[ClaimId, ...], ...] = ()
    """The claims of each that can't all be right."""
    ledger: BlobRef | None = None
    """A `shared.types.conflicts.Conflicts`, as JSON: the same, with what they say. None: there are none."""
    left_out: NonNegativeInt = 0
    """Claims that were not looked at, because there are too many."""


class Judged(Message):
    """The judge has looked at the conflicts. Those that it named neither way, or was not shown, stay disputed."""

    type: Literal["judged"] = "judged"
    result: BlobRef
    """The judge's HandoffResult; its output is a `shared.types.conflicts.Settlements`."""
    settled: tuple[ConflictId, ...] = ()
    problem: str | None = None
    """Why nothing is settled."""


class Arbitrated(Message):
    """The judge has looked at what a review asks of steps that were sent back for it before. What it settled neither way is disputed."""

    type: Literal["arbitrated"] = "arbitrated"
    result: BlobRef
    """The judge's HandoffResult; its output is a `shared.types.rulings.Rulings`."""
    writer: tuple[StepIdField, ...] = ()
    """Steps whose result is as it should be."""
    reviewer: tuple[StepIdField, ...] = ()
    """Steps of which the review is right."""
    problem: str | None = None
    """Why nothing is settled."""
