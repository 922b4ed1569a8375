"""The port from the agent loop to the store: the checkpoints of one claimed handoff.

`shared.store.claim.Claim` implements it. Unit tests use
`tests.doubles.memory_checkpoints.MemoryCheckpoints`. Both pass tests/contracts/test_checkpoints.py.
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
        """Return the checkpoints of earlier claims of this handoff, oldest first."""
        ...

    def reserve(self, worst: WorstCase, expected: Expected | None = None) -> Wait | None:
        """Reserve the budget of a model call. Waits while other reservations of the job are open.

        Returns:
            None if the call may be made. A `Wait` if the provider's rate limits refuse the call:
            nothing is reserved, and the caller asks again later.

        Args:
            expected: expected share of the rate limits; None if there are none.

        Raises:
            LimitReached: the job's budget can never take this call; `limit` names it.
        """
        ...

    def heard(self, limits: RateLimits) -> None:
        """Record that the provider takes the call that was reserved last, with the reported limits."""
        ...

    def refused(
        self, why: str, retry_after_s: float | None, limits: RateLimits = NOTHING_SAID
    ) -> None:
        """Record that the provider takes no calls now (429, 529). No process makes a call before
        `retry_after_s` seconds, or a backoff, are over.

        Args:
            limits: the rate limits that the provider reported with the refusal.
        """
        ...

    def checkpoint(self, *checkpoints: Checkpoint, may_wait: bool = False) -> None:
        """Append. A `Replied` or `CallFailed` settles the reservation at its usage.
        `may_wait`: until something else is said of the handoff, its result for one, which
        takes it along.
        """
        ...

    def beat(self, doing: str, draft: str | None = None) -> None:
        """Send a heartbeat: the current activity in a few words, or more text of the draft.

        A change is sent at least 0.4 s after the last heartbeat. The same activity, or a shorter
        wait, is sent after 2 s.

        Raises:
            Interrupted: this process must stop its work on the handoff.
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
