"""The reservation of a call in a batch stays while no process has the claim, because the reply can
still be read. It is settled once.
"""

from __future__ import annotations

import pytest

from handoff_queue.shared.store.claim import HandoffClaim
from handoff_queue.shared.store.claim_requests import ClaimRequest
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.checkpoints import (
    BatchClosed,
    BatchCreated,
    BatchIntended,
    WorstCase,
)
from handoff_queue.shared.types.events import CancelRequested
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.usage import NOTHING_USED, Usage
from tests.doubles.jobs import (
    accounts,
    expire_lease,
    finish,
    granted_claim,
    handoff_key,
    model_reply,
    nothing_reserved,
    text_of,
    version_of,
)

HANDOFF_ID = HandoffId("find.1")
WORST = WorstCase(100, 50, 1_000, is_batched=True)
INTENDED = BatchIntended(custom_id="c", model="m", at=1.0, most=Usage())
CREATED = BatchCreated(custom_id="c", batch_id="msgbatch_1", at=1.0)
CLOSED = BatchClosed(custom_id="c", why="expired", goes_live=True)


def sent(store: Store, job_id: JobId) -> HandoffClaim:
    """Return the claim of a process that has stored the intention of a batch."""
    claimed = granted_claim(store, job_id, HANDOFF_ID)
    assert claimed.reserve(WORST) is None
    claimed.checkpoint(INTENDED)
    return claimed


def is_only_reserved(store: Store, job_id: JobId) -> bool:
    amounts = accounts(store, job_id)
    return amounts["reserved_usd"] == 1_000 and amounts.get("usd", 0) == 0


def test_the_reservation_survives_the_death_of_the_process(store: Store, job_id: JobId) -> None:
    expire_lease(store, sent(store, job_id))
    store.due_work.sweep()
    assert is_only_reserved(store, job_id)
    granted_claim(store, job_id, HANDOFF_ID, "w2")
    assert is_only_reserved(store, job_id)


def test_the_reservation_survives_a_claim_before_the_sweep(store: Store, job_id: JobId) -> None:
    expire_lease(store, sent(store, job_id))
    granted_claim(store, job_id, HANDOFF_ID, "w2")
    assert is_only_reserved(store, job_id)


def test_the_reservation_survives_a_claim_that_is_sent_twice(store: Store, job_id: JobId) -> None:
    expire_lease(store, sent(store, job_id))
    wanted = ClaimRequest(job_id, HANDOFF_ID, compute_digest(text_of(HANDOFF_ID)), "w2")
    store.claims.claim(wanted)
    store.claims.claim(wanted)
    assert is_only_reserved(store, job_id)


def test_the_reservation_survives_a_deferral_and_the_end_of_a_process(
    store: Store, job_id: JobId
) -> None:
    assert sent(store, job_id).defer(0, "waits for batch b")
    granted_claim(store, job_id, HANDOFF_ID).release()
    assert is_only_reserved(store, job_id)


def test_the_reply_of_a_later_claim_settles_the_reservation(store: Store, job_id: JobId) -> None:
    assert sent(store, job_id).defer(0, "waits for batch b")
    reply = model_reply()
    granted_claim(store, job_id, HANDOFF_ID).checkpoint(reply)
    assert nothing_reserved(store, job_id)
    assert accounts(store, job_id)["usd"] == reply.usage.cost_microusd


def test_a_batch_without_a_reply_costs_nothing(store: Store, job_id: JobId) -> None:
    assert sent(store, job_id).defer(0, "waits for batch b")
    granted_claim(store, job_id, HANDOFF_ID).checkpoint(CLOSED)
    assert nothing_reserved(store, job_id)
    assert accounts(store, job_id).get("turns", 0) == 0


def test_a_reservation_without_an_intention_is_replaced(store: Store, job_id: JobId) -> None:
    claimed = granted_claim(store, job_id, HANDOFF_ID)
    assert claimed.reserve(WORST) is None
    expire_lease(store, claimed)
    again = granted_claim(store, job_id, HANDOFF_ID, "w2")
    assert again.reserve(WorstCase(10, 5, 100)) is None
    assert accounts(store, job_id)["reserved_usd"] == 100


def created(store: Store, job_id: JobId) -> HandoffClaim:
    """Return the claim of a process that has stored the id of a batch."""
    claimed = sent(store, job_id)
    claimed.checkpoint(CREATED)
    return claimed


def test_an_end_with_a_batch_of_unknown_id_counts_at_the_upper_bound(
    store: Store, job_id: JobId
) -> None:
    finish(sent(store, job_id))
    assert nothing_reserved(store, job_id)
    assert accounts(store, job_id)["usd"] == 1_000


def test_a_dropped_handoff_with_a_batch_of_unknown_id_counts_at_the_upper_bound(
    store: Store, job_id: JobId
) -> None:
    assert sent(store, job_id).defer(60, "waits for batch b")
    drop(store, job_id)
    assert nothing_reserved(store, job_id)
    assert accounts(store, job_id)["usd"] == 1_000


@pytest.mark.parametrize(("usage", "spent"), [(None, 1_000), (NOTHING_USED, 0)])
def test_an_end_with_an_open_batch_is_settled_by_the_result_of_the_batch(
    store: Store, job_id: JobId, usage: Usage | None, spent: int
) -> None:
    finish(created(store, job_id))
    store.due_work.sweep()
    assert is_only_reserved(store, job_id)
    (unwanted,) = store.unwanted_batches.list_oldest()
    store.unwanted_batches.settle(unwanted, usage)
    assert nothing_reserved(store, job_id)
    assert accounts(store, job_id).get("usd", 0) == spent


def test_a_result_of_an_earlier_batch_does_not_settle_a_call_of_a_later_one(
    store: Store, job_id: JobId
) -> None:
    finish(created(store, job_id))
    store.due_work.sweep()
    (unwanted,) = store.unwanted_batches.list_oldest()
    key = handoff_key(store, job_id, HANDOFF_ID)
    version = store.connection.redis.hget(key, "end_version").decode()
    assert store.refused_events.reopen_handoff(job_id, HANDOFF_ID, int(version))
    again = granted_claim(store, job_id, HANDOFF_ID, "w2")
    assert again.reserve(WORST) is None
    again.checkpoint(INTENDED)
    again.checkpoint(BatchCreated(custom_id="c", batch_id="msgbatch_2", at=2.0))
    store.unwanted_batches.settle(unwanted, NOTHING_USED)
    amounts = accounts(store, job_id)
    assert (amounts["reserved_usd"], amounts["usd"]) == (1_000, 1_000), "once each"


def drop(store: Store, job_id: JobId) -> None:
    store.journal.commit(
        Commit(job_id, version_of(store, job_id), [CancelRequested()], drop=[HANDOFF_ID])
    )


def test_the_batch_of_a_dropped_handoff_is_unwanted_until_it_has_ended(
    store: Store, job_id: JobId
) -> None:
    claimed = created(store, job_id)
    assert claimed.defer(60, "waits for batch b")
    drop(store, job_id)
    assert is_only_reserved(store, job_id), "the result of the batch settles it"
    (unwanted,) = store.unwanted_batches.list_oldest()
    assert (unwanted.batch_id, unwanted.custom_id) == ("msgbatch_1", "c")
    store.unwanted_batches.settle(unwanted, None)
    assert store.unwanted_batches.list_oldest() == []


def test_a_dropped_handoff_waits_for_no_batch(store: Store, job_id: JobId) -> None:
    assert sent(store, job_id).defer(60, "waits for batch b")
    drop(store, job_id)
    info = store.jobs.read_handoffs(job_id, [HANDOFF_ID])[HANDOFF_ID]
    assert (info.state, info.doing) == ("dropped", "")


def test_a_batch_whose_reply_was_read_is_not_cancelled(store: Store, job_id: JobId) -> None:
    claimed = created(store, job_id)
    claimed.checkpoint(model_reply())
    drop(store, job_id)
    assert store.unwanted_batches.list_oldest() == []


def test_the_wait_for_a_batch_does_not_count_as_time_of_the_handoff(
    store: Store, job_id: JobId
) -> None:
    wanted = ClaimRequest(
        job_id, HANDOFF_ID, compute_digest(text_of(HANDOFF_ID)), "w1", max_seconds=60
    )
    first = store.claims.claim(wanted)
    assert first.reserve(WORST) is None
    first.checkpoint(INTENDED)
    assert first.defer(0, "waits for batch b")
    redis, key = store.connection.redis, handoff_key(store, job_id, HANDOFF_ID)
    redis.hset(key, "batch_since", int(redis.hget(key, "batch_since")) - 50_000)
    again = store.claims.claim(
        ClaimRequest(job_id, HANDOFF_ID, wanted.digest, "w2", max_seconds=60)
    )
    assert first.ends_at is not None
    assert again.ends_at is not None
    assert again.ends_at >= first.ends_at + 50


@pytest.mark.parametrize("worst", [WORST, WorstCase(100, 50, 1_000)])
def test_only_a_call_in_a_batch_stays_reserved(
    store: Store, job_id: JobId, worst: WorstCase
) -> None:
    claimed = granted_claim(store, job_id, HANDOFF_ID)
    assert claimed.reserve(worst) is None
    expire_lease(store, claimed)
    store.due_work.sweep()
    assert nothing_reserved(store, job_id) is not worst.is_batched
