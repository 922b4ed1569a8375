"""What the loop needs of the store: the checkpoints of one claimed handoff. Implemented by
`shared.store.claim.Claim` and, in unit tests, by `tests.doubles.turns.MemoryTurns`; both pass
tests/contracts/test_turns.py.
"""

from __future__ import annotations

from typing import NoReturn, Protocol

from handoff_queue.shared.types.checkpoints import Checkpoint, WorstCase
from handoff_queue.shared.types.errors import LeaseLost
from handoff_queue.shared.types.rate_limits import NOTHING_SAID, Expected, RateLimits, Wait


class CheckpointStore(Protocol):
    """The checkpoints and the budget of one claimed handoff. Every method raises `Interrupted`
    if the claim is no longer ours.
    """

    def so_far(self) -> tuple[Checkpoint, ...]:
        """What earlier claims of this handoff have checkpointed, oldest first."""
        ...

    def reserve(self, worst: WorstCase, expected: Expected | None = None) -> Wait | None:
        """Before a model call. Waits while other reservations of the job are out. None: the
        call may be made; else the provider's rate limits stand against it, nothing is
        reserved, and it is to be asked again. `expected` None: nobody counts.

        Raises:
            LimitReached: the job's budget can never take this call; `limit` names it.
        """
        ...

    def heard(self, limits: RateLimits) -> None:
        """The provider takes the call that was reserved last, and says this of its limits."""
        ...

    def refused(
        self, why: str, retry_after_s: float | None, limits: RateLimits = NOTHING_SAID
    ) -> None:
        """The provider takes no calls now (429, 529): nobody makes one before `retry_after_s`
        seconds, or a backoff, are over. `limits`: what it says of them beside that.
        """
        ...

    def checkpoint(self, *checkpoints: Checkpoint, may_wait: bool = False) -> None:
        """Append. A `Replied` or `CallFailed` settles the reservation at its usage.
        `may_wait`: until something else is said of the handoff, its result for one, which
        takes it along.
        """
        ...

    def beat(self, doing: str, draft: str | None = None) -> None:
        """A sign of life: what goes on right now, in a few words, or more of the draft. News
        is sent on 0.4 s after the last sign at the earliest, the same again, or fewer seconds
        to wait, after 2 s. Raises if interrupted.
        """
        ...


class NoCheckpoints:
    """The turns of a handoff before its claim: there are none, and none may be made."""

    def so_far(self) -> tuple[Checkpoint, ...]:
        return ()

    def reserve(self, worst: WorstCase, expected: Expected | None = None) -> Wait | None:
        self._refuse(worst, expected)

    def heard(self, limits: RateLimits) -> None:
        self._refuse(limits)

    def refused(
        self, why: str, retry_after_s: float | None, limits: RateLimits = NOTHING_SAID
    ) -> None:
        self._refuse(why, retry_after_s, limits)

    def checkpoint(self, *checkpoints: Checkpoint, may_wait: bool = False) -> None:
        self._refuse(checkpoints, may_wait)

    def beat(self, doing: str, draft: str | None = None) -> None:
        self._refuse(doing, draft)

    def _refuse(self, *_: object) -> NoReturn:
        raise LeaseLost("this handoff has not been claimed")
