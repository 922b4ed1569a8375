"""Batches of a provider in memory, on the fake clock of a test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from handoff_queue.shared.providers.anthropic.stream import parse_usage
from handoff_queue.shared.types.batches import BatchOutcome, BatchState, BatchStatus
from handoff_queue.shared.types.errors import ModelError
from handoff_queue.shared.types.model import ModelCall, ModelReply
from handoff_queue.testing import Reply


@dataclass(slots=True)
class MemoryBatch:
    """A batch of one call. Times are seconds of the clock."""

    batch_id: str
    custom_id: str
    call: ModelCall
    created_at: float
    ends_at: float
    requests: int = 1
    is_cancelled: bool = False
    outcome: BatchOutcome | None = None
    """The result after the end."""


@dataclass(slots=True)
class MemoryBatches:
    """Batches whose replies a script gives. A call is paid when its batch ends with a reply."""

    script: Callable[[ModelCall], Reply | str]
    """Returns the reply to a call, or the reason why there is none."""
    now: Callable[[], float]
    duration_s: float = 30.0
    cancel_s: float = 0.0
    """Seconds from a cancellation to the end of the batch."""
    keeps_replies: bool = False
    """True: a cancelled batch ends with a reply."""
    batches: list[MemoryBatch] = field(default_factory=list)
    paid: list[str] = field(default_factory=list)
    """Custom ids of the calls with a reply."""
    before_create: Callable[[], None] = lambda: None
    after_create: Callable[[], None] = lambda: None
    """Called after the batch exists, and before the caller knows it."""
    errors: list[ModelError] = field(default_factory=list)
    """Errors of the next questions about batches."""

    def create(self, custom_id: str, call: ModelCall) -> BatchState:
        self.before_create()
        batch = self.add(custom_id, call)
        self.after_create()
        return self._state(batch)

    def add(self, custom_id: str, call: ModelCall) -> MemoryBatch:
        """Add a batch, as another program with the same account does."""
        now = self.now()
        batch = MemoryBatch(
            f"msgbatch_{len(self.batches)}", custom_id, call, now, now + self.duration_s
        )
        self.batches.append(batch)
        return batch

    def retrieve(self, batch_id: str) -> BatchState:
        self._fail()
        return self._state(self._named(batch_id))

    def list_batches_since(self, since: float) -> Sequence[BatchState]:
        self._fail()
        return [self._state(batch) for batch in self.batches if batch.created_at >= since]

    def fetch_outcome(self, batch_id: str, custom_id: str, model: str) -> BatchOutcome | None:
        self._fail()
        batch = self._named(batch_id)
        self._state(batch)
        assert batch.outcome is not None, "the results of a batch exist after its end"
        if batch.custom_id == custom_id:
            return batch.outcome
        return None

    def cancel(self, batch_id: str) -> None:
        batch = self._named(batch_id)
        if self._state(batch).status is BatchStatus.IN_PROGRESS:
            batch.is_cancelled = True
            batch.ends_at = self.now() + self.cancel_s

    def _named(self, batch_id: str) -> MemoryBatch:
        return next(batch for batch in self.batches if batch.batch_id == batch_id)

    def _fail(self) -> None:
        if self.errors:
            raise self.errors.pop(0)

    def _state(self, batch: MemoryBatch) -> BatchState:
        if self.now() >= batch.ends_at and batch.outcome is None:
            batch.outcome = self._end(batch)
        status = BatchStatus.CANCELING if batch.is_cancelled else BatchStatus.IN_PROGRESS
        if batch.outcome is not None:
            status = BatchStatus.ENDED
        return BatchState(batch.batch_id, status, batch.created_at, batch.requests)

    def _end(self, batch: MemoryBatch) -> BatchOutcome:
        if batch.is_cancelled and not self.keeps_replies:
            return BatchOutcome(why="canceled")
        reply = self.script(batch.call)
        if isinstance(reply, str):
            return BatchOutcome(why=reply)
        self.paid.append(batch.custom_id)
        blocks = tuple(dict(block) for block in reply.blocks)
        return BatchOutcome(
            ModelReply(
                blocks,
                reply.stop_reason or "end_turn",
                parse_usage(reply.usage),
                reply.model or batch.call.model,
            )
        )
