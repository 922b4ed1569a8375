"""A supervisor cancels the batches of dropped handoffs."""

from __future__ import annotations

from dataclasses import dataclass, field

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.batches import Batches
from handoff_queue.shared.types.errors import ModelError, ModelRejected, ModelUnreachable
from handoff_queue.shared.types.model import ModelCall, SystemPrompt
from handoff_queue.supervisor.engine.batch_canceller import BatchCanceller
from handoff_queue.testing import text_reply
from tests.doubles.memory_batches import MemoryBatches


@dataclass(slots=True)
class Provider(MemoryBatches):
    """Batches whose cancellation fails with an error, by their ids."""

    failing: dict[str, ModelError] = field(default_factory=dict)

    def cancel(self, batch_id: str) -> None:
        if batch_id in self.failing:
            raise self.failing[batch_id]
        MemoryBatches.cancel(self, batch_id)


def provider(**failing: ModelError) -> Provider:
    """Return a provider with one batch that has not ended."""
    made = Provider(lambda _call: text_reply("x"), lambda: 0.0, failing=failing)
    made.add("c", ModelCall("m", SystemPrompt(""), (), 1))
    return made


def cancel(store: Store, batches: Batches | None, *batch_ids: str) -> None:
    """Run the canceller to its end, with these unwanted batches."""
    for place, batch_id in enumerate(batch_ids):
        store.connection.redis.zadd(keys.BATCHES, {batch_id: place})
    store.connection.redis.expire(keys.BATCHES, 3_600)
    canceller = BatchCanceller(store.unwanted_batches, lambda: batches)
    canceller.start()
    canceller.wait()


def test_an_unwanted_batch_is_cancelled_and_forgotten(store: Store) -> None:
    batches = provider()
    cancel(store, batches, "msgbatch_0")
    assert batches.batches[0].is_cancelled
    assert store.unwanted_batches.oldest() == []


def test_a_batch_without_an_answer_is_tried_again(store: Store) -> None:
    cancel(store, provider(msgbatch_0=ModelUnreachable("no answer")), "msgbatch_0")
    assert store.unwanted_batches.oldest() == ["msgbatch_0"]


def test_a_batch_that_the_provider_does_not_know_is_forgotten(store: Store) -> None:
    batches = provider(msgbatch_9=ModelRejected("not found", status=404))
    cancel(store, batches, "msgbatch_9", "msgbatch_0")
    assert batches.batches[0].is_cancelled
    assert store.unwanted_batches.oldest() == []


def test_a_supervisor_without_batches_forgets_them(store: Store) -> None:
    cancel(store, None, "msgbatch_0")
    assert store.unwanted_batches.oldest() == []
