"""When model calls of a handoff go through batches of the provider, and when the worker asks for
their results. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from handoff_queue.shared.types.batches import BatchState, ProviderBatches
from handoff_queue.shared.types.checkpoints import (
    BatchClosed,
    BatchCreated,
    BatchIntended,
    Checkpoint,
    ModelCallFailed,
    ModelReplied,
)

MAX_POLL_PER_FIRST = 20
"""Longest wait between two questions about a batch, as a multiple of `first_poll_s`. With the
default setting, it is 5 minutes.
"""
CANCEL_POLL_S = 5.0
"""Seconds between two questions about a batch that the worker has cancelled."""
MAX_CANCEL_S = 120.0
"""Seconds for the end of a cancelled batch. The provider ends the requests that it has begun."""
CLOCK_SKEW_S = 120.0
"""Most seconds between the clocks of Redis and of the provider."""
CREATION_S = 180.0
"""Longest time from the intention to the creation of a batch: the longest request and a lease, in
seconds.
"""
MAX_CLOSED = 2
"""Batches of one handoff without a reply, after which all its calls are live."""


@dataclass(frozen=True, slots=True)
class BatchRules:
    """The batches that a handoff may use, and until when."""

    provider: ProviderBatches
    until: float
    """Time at which the slack ends, in Unix seconds by Redis's clock."""
    first_poll_s: float = 15.0
    """Seconds from the creation of a batch to the first question about it."""

    def may_send(self, checkpoints: Sequence[Checkpoint], now: float) -> bool:
        """Return whether the next call may go into a batch. It may if there is time for a first
        question, and no batch of this turn has ended without a reply.
        """
        if now + self.first_poll_s >= self.until:
            return False
        closed_batches = 0
        is_same_turn = True
        for checkpoint in reversed(checkpoints):
            if isinstance(checkpoint, ModelReplied | ModelCallFailed):
                is_same_turn = False
            elif isinstance(checkpoint, BatchClosed) and checkpoint.goes_live:
                if is_same_turn:
                    return False
                closed_batches += 1
        return closed_batches < MAX_CLOSED

    def compute_poll_s(self, created_at: float, now: float) -> float:
        """Return the seconds until the next question about a batch. The wait grows with the age of
        the batch, and ends with the slack.
        """
        longest_s = self.first_poll_s * MAX_POLL_PER_FIRST
        wait_s = min(longest_s, max(self.first_poll_s, (now - created_at) / 2))
        if now < self.until:
            wait_s = min(wait_s, self.until - now)
        return max(wait_s, 0.0)

    def compute_give_up_time(self, ends_at: float | None) -> float:
        """Return the time after which a cancelled batch that has not ended is given up. It is at
        most half of the time that is left for the live call.

        Args:
            ends_at: end of the handoff's working time, in Unix seconds; None: no end.
        """
        if ends_at is None:
            return self.until + MAX_CANCEL_S
        return self.until + min(MAX_CANCEL_S, max(0.0, ends_at - self.until) / 2)


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """A call in a batch whose reply is not stored yet."""

    intended: BatchIntended
    created: BatchCreated | None
    """None: it is not known whether the provider has created the batch."""

    @property
    def since(self) -> float:
        """Return the time of its creation, or of the intention. Unix time in seconds."""
        return (self.created or self.intended).at

    def may_be(self, state: BatchState) -> bool:
        """Return whether a batch of the account may be this one, by its time and size."""
        earliest = self.intended.at - CLOCK_SKEW_S
        latest = self.intended.at + CREATION_S + CLOCK_SKEW_S
        return state.requests == 1 and earliest <= state.created_at <= latest


def find_open_batch(checkpoints: Sequence[Checkpoint]) -> OpenBatch | None:
    """Return the call that is in a batch, or None."""
    created = None
    for checkpoint in reversed(checkpoints):
        if isinstance(checkpoint, ModelReplied | ModelCallFailed | BatchClosed):
            return None
        if isinstance(checkpoint, BatchCreated):
            created = checkpoint
        elif isinstance(checkpoint, BatchIntended):
            return OpenBatch(checkpoint, created)
    return None
