"""A supervisor cancels the batches of dropped handoffs, and settles the reservations of their calls
by the results of the batches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from handoff_queue.shared.agent.prices import Prices
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.batches import ProviderBatches
from handoff_queue.shared.types.checkpoints import BatchCreated, BatchIntended, WorstCase
from handoff_queue.shared.types.errors import ModelError, ModelRejected, ModelUnreachable
from handoff_queue.shared.types.events import CancelRequested
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.model import ModelCall, SystemPrompt
from handoff_queue.shared.types.usage import Usage
from handoff_queue.supervisor.engine.batch_canceller import BatchCanceller
from handoff_queue.testing import text_reply
from tests.doubles.jobs import a_job, accounts, granted_claim, issue, nothing_reserved, version_of
from tests.doubles.memory_batches import MemoryBatches

HANDOFF_ID = HandoffId("find.1")
MODEL = "claude-haiku-5-5"
MAX_MICROUSD = 1_000_000
"""Upper bound of the call."""
UNKNOWN = ModelRejected("not found", status=404)


@pytest.fixture
def job_id(store: Store) -> JobId:
    """Return a job whose handoff `HANDOFF_ID` is issued."""
    job_id = a_job(store)
    issue(store, job_id, HANDOFF_ID)
    return job_id


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
    made.add("c", ModelCall(MODEL, SystemPrompt(""), (), 1))
    return made


def drop(store: Store, job_id: JobId, *, batch_id: str = "msgbatch_0") -> None:
    """Cancel a job whose handoff waits for this batch."""
    claimed = granted_claim(store, job_id, HANDOFF_ID)
    assert claimed.reserve(WorstCase(100, 50, MAX_MICROUSD, MODEL, is_batched=True)) is None
    claimed.checkpoint(BatchIntended(custom_id="c", model=MODEL, at=1.0, most=Usage()))
    claimed.checkpoint(BatchCreated(custom_id="c", batch_id=batch_id, at=1.0))
    assert claimed.defer(60, f"waits for batch {batch_id}")
    version = version_of(store, job_id)
    store.journal.commit(Commit(job_id, version, [CancelRequested()], drop=[HANDOFF_ID]))


def advance(store: Store, batches: ProviderBatches | None, looks: int = 1) -> None:
    """Let a new supervisor look after the unwanted batches this many times."""
    for _ in range(looks):
        canceller = BatchCanceller(store.unwanted_batches, lambda: batches, Prices())
        canceller.start()
        canceller.wait()


def spent(store: Store, job_id: JobId) -> tuple[int, int]:
    """Return the model calls and the micro-dollars of the job, after the release of everything that
    was reserved.
    """
    assert nothing_reserved(store, job_id)
    assert store.unwanted_batches.list_oldest() == []
    amounts = accounts(store, job_id)
    return amounts.get("turns", 0), amounts.get("usd", 0)


def test_a_cancelled_batch_costs_nothing(store: Store, job_id: JobId) -> None:
    batches = provider()
    drop(store, job_id)
    advance(store, batches, looks=2)
    assert batches.batches[0].is_cancelled
    assert spent(store, job_id) == (0, 0)


def test_a_cancelled_batch_with_a_reply_costs_half_of_the_reply(
    store: Store, job_id: JobId
) -> None:
    batches = provider()
    batches.keeps_replies = True
    drop(store, job_id)
    advance(store, batches, looks=2)
    reply = batches.batches[0].outcome
    assert reply is not None
    assert reply.reply is not None
    half = Prices().add_batch_cost(reply.reply.usage, MODEL)
    assert spent(store, job_id) == (1, half.cost_microusd)
    assert accounts(store, job_id).get("cut_calls", 0) == 0


def test_the_call_stays_reserved_until_the_cancelled_batch_has_ended(
    store: Store, job_id: JobId
) -> None:
    batches = provider()
    batches.cancel_s = 60
    drop(store, job_id)
    advance(store, batches, looks=3)
    amounts = accounts(store, job_id)
    assert (amounts["reserved_usd"], amounts.get("usd", 0)) == (MAX_MICROUSD, 0)


def test_two_supervisors_settle_a_call_once(store: Store, job_id: JobId) -> None:
    batches = provider()
    batches.keeps_replies = True
    drop(store, job_id)
    (unwanted,) = store.unwanted_batches.list_oldest()
    advance(store, batches, looks=2)
    once = spent(store, job_id)
    store.unwanted_batches.settle(unwanted, Usage(input_tokens=1, output_tokens=1))
    assert spent(store, job_id) == once


def test_a_batch_without_an_answer_is_tried_again(store: Store, job_id: JobId) -> None:
    drop(store, job_id)
    advance(store, provider(msgbatch_0=ModelUnreachable("no answer")))
    (unwanted,) = store.unwanted_batches.list_oldest()
    assert unwanted.batch_id == "msgbatch_0"


@pytest.mark.parametrize(
    "batches", [lambda: provider(msgbatch_0=UNKNOWN), lambda: None], ids=["unknown", "no batches"]
)
def test_a_call_whose_batch_cannot_be_read_counts_at_its_upper_bound(
    store: Store, job_id: JobId, batches: Callable[[], ProviderBatches | None]
) -> None:
    drop(store, job_id)
    advance(store, batches())
    assert spent(store, job_id) == (1, MAX_MICROUSD)


def test_the_deletion_of_a_job_leaves_no_reservation(store: Store, job_id: JobId) -> None:
    batches = provider()
    drop(store, job_id)
    store.jobs.delete(job_id)
    days = store.connection.redis.keys("handoff:day:*")
    assert days
    for day in days:
        reserved = store.connection.redis.hmget(day, "reserved_usd", "reserved_tokens")
        assert list(map(int, reserved)) == [0, 0]
    advance(store, batches, looks=2)
    assert batches.batches[0].is_cancelled
    assert store.unwanted_batches.list_oldest() == []
