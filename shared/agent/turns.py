"""What the loop needs of the ledger: the checkpoints of one claimed handoff. Implemented by `shared.ledger.claim.Claim`
and, in unit tests, by `tests.doubles.turns.MemoryTurns`; both pass tests/contracts/test_turns.py.
"""

from __future__ import annotations

from typing import Protocol

from shared.wire.checkpoints import Checkpoint, WorstCase
from shared.wire.errors import LeaseLost


class Turns(Protocol):
    """The checkpoints and the budget of one claimed handoff. Every method raises `Interrupted` if the claim is no longer ours."""

    def so_far(self) -> tuple[Checkpoint, ...]:
        """What earlier claims of this handoff have checkpointed, oldest first."""
        ...

    def reserve(self, worst: WorstCase) -> None:
        """Before a model call. Waits while other reservations of the job are out.

        Raises:
            LimitReached: the job's budget can never take this call; `limit` names it.
        """
        ...

    def checkpoint(self, *checkpoints: Checkpoint) -> None:
        """Append. A `Replied` or `CallFailed` settles the reservation at its usage."""
        ...

    def beat(self, doing: str, draft: str | None = None) -> None:
        """A sign of life: what goes on right now, in a few words; at most sent on twice a second. Raises if interrupted."""
        ...


class Unclaimed:
    """The turns of a handoff before its claim: there are none, and none may be made."""

    def so_far(self) -> tuple[Checkpoint, ...]:
        return ()

    def reserve(self, worst: WorstCase) -> None:
        self._refuse(worst)

    def checkpoint(self, *checkpoints: Checkpoint) -> None:
        self._refuse(checkpoints)

    def beat(self, doing: str, draft: str | None = None) -> None:
        self._refuse(doing, draft)

    def _refuse(self, *_: object) -> None:
        raise LeaseLost("this handoff has not been claimed")
