"""Claims of a job that contradict each other, and what the judge makes of them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from handoff_queue.shared.types.handoff import Claim, ClaimId
from handoff_queue.shared.types.message import Message

ConflictId = Annotated[str, StringConstraints(pattern=r"^k[0-9]{1,4}$")]


class Conflict(Message):
    """Claims that can't all be right, with their evidence."""

    id: ConflictId
    claims: Annotated[tuple[Claim, ...], Field(min_length=2)]


class Conflicts(Message):
    """A job's conflict ledger: what code has found among the claims of one round."""

    conflicts: tuple[Conflict, ...] = ()


class Settlement(Message):
    """What the judge says of one conflict."""

    conflict: ConflictId
    stands: tuple[ClaimId, ...] = ()
    """The claims that stand; the others of the conflict do not. All of them: they do not contradict each other. None: it stays disputed."""
    why: Annotated[str, StringConstraints(max_length=4_000)] = ""


class Settlements(Message):
    """One for each conflict that the judge was shown."""

    settlements: tuple[Settlement, ...] = ()
