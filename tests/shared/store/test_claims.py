"""A claim is the exclusive right to run a handoff during a lease. Its fence refuses earlier
holders.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields

import pytest

from handoff_queue.shared.store.claim import ClaimVerdict
from handoff_queue.shared.store.claim_requests import MAX_CLAIMS, ClaimRequest
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.checkpoints import ToolObserved, WorstCase
from handoff_queue.shared.types.errors import Cancelled, Draining, LeaseLost, Level, LimitReached
from handoff_queue.shared.types.events import CancelRequested, HandoffIssued
from handoff_queue.shared.types.ids import HandoffId, JobId, create_job_id
from handoff_queue.shared.types.message import compute_digest
from tests.doubles.jobs import (
    a_job,
    claim,
    drop_handoff,
    expire_lease,
    finish,
    granted_claim,
    issue,
    model_reply,
    text_of,
    turns_key,
)
from tests.waiting import wait_until

HANDOFF_ID = HandoffId("find.1")


@pytest.fixture
def job_id(store: Store) -> JobId:
    """Return a job with two issued handoffs."""
    job_id = a_job(store)
    issue(store, job_id, "find.1", "look.1")
    return job_id


def test_the_first_claimant_gets_the_handoff(store: Store, job_id: JobId) -> None:
    assert claim(store, job_id, "find.1").verdict is ClaimVerdict.GRANTED


def test_one_of_many_concurrent_claimants_gets_the_handoff(store: Store, job_id: JobId) -> None:
    start = threading.Barrier(8)

    def ask(worker: int) -> ClaimVerdict:
        start.wait()
        return claim(store, job_id, "find.1", f"w{worker}").verdict

    with ThreadPoolExecutor(8) as pool:
        verdicts = sorted(pool.map(ask, range(8)))
    assert verdicts == [ClaimVerdict.BUSY] * 7 + [ClaimVerdict.GRANTED]


def test_a_handoff_is_busy_during_its_lease(store: Store, job_id: JobId) -> None:
    granted_claim(store, job_id, "find.1")

    assert claim(store, job_id, "find.1", "w2").verdict is ClaimVerdict.BUSY


def test_an_ended_handoff_is_a_duplicate(store: Store, job_id: JobId) -> None:
    finish(granted_claim(store, job_id, "find.1"))

    assert claim(store, job_id, "find.1").verdict is ClaimVerdict.DUPLICATE


def test_an_unwanted_handoff_is_a_duplicate(store: Store, job_id: JobId) -> None:
    drop_handoff(store, job_id, "find.1")

    assert claim(store, job_id, "find.1").verdict is ClaimVerdict.DUPLICATE


def test_a_cancelled_job_grants_nothing(store: Store, job_id: JobId) -> None:
    store.journal.append(job_id, CancelRequested(), {"cancelled": 1})

    assert claim(store, job_id, "find.1").verdict is ClaimVerdict.CANCELLED


def test_a_message_with_other_content_is_unknown(store: Store, job_id: JobId) -> None:
    assert (
        store.claims.claim(ClaimRequest(job_id, HANDOFF_ID, "0" * 64, "w1")).verdict
        is ClaimVerdict.UNKNOWN
    )
    assert claim(store, job_id, "find.1").verdict is ClaimVerdict.GRANTED


def test_a_handoff_or_job_that_the_store_does_not_have_is_unknown_and_leaves_nothing_behind(
    store: Store, job_id: JobId
) -> None:
    before = sorted(store.connection.redis.keys())

    assert claim(store, job_id, "nobody.1").verdict is ClaimVerdict.UNKNOWN
    assert claim(store, create_job_id(), "find.1").verdict is ClaimVerdict.UNKNOWN
    assert sorted(store.connection.redis.keys()) == before


def test_the_next_claim_continues_after_the_last_checkpoint(store: Store, job_id: JobId) -> None:
    first = granted_claim(store, job_id, "find.1")
    first.checkpoint(model_reply())
    first.checkpoint(ToolObserved(tool_use_id="t1", text="found"))
    expire_lease(store, first)

    assert granted_claim(store, job_id, "find.1", "w2").load_earlier_checkpoints() == (
        model_reply(),
        ToolObserved(tool_use_id="t1", text="found"),
    )


def test_tool_calls_are_counted_at_their_answer_in_every_claim(store: Store, job_id: JobId) -> None:
    first = granted_claim(store, job_id, "find.1")
    first.checkpoint(model_reply())
    first.checkpoint(
        ToolObserved(tool_use_id="t1", text="found"),
        ToolObserved(tool_use_id="t2", text="not found", is_error=True),
    )
    expire_lease(store, first)
    granted_claim(store, job_id, "find.1", "w2").checkpoint(
        ToolObserved(tool_use_id="t3", text="found")
    )

    assert (
        store.jobs.read_handoffs(job_id, [HandoffId("find.1")])[HandoffId("find.1")].tool_calls == 3
    )


def test_thousands_of_checkpoints_are_read_back(store: Store, job_id: JobId) -> None:
    first = granted_claim(store, job_id, "find.1")
    many = [ToolObserved(tool_use_id=f"t{n}", text="found") for n in range(9_000)]
    for at in range(0, 9_000, 3_000):
        first.checkpoint(*many[at : at + 3_000])
    expire_lease(store, first)

    assert len(granted_claim(store, job_id, "find.1").load_earlier_checkpoints()) == 9_000


def test_checkpoints_go_when_the_handoff_ends(store: Store, job_id: JobId) -> None:
    running = granted_claim(store, job_id, "find.1")
    running.checkpoint(model_reply())
    assert store.connection.redis.exists(turns_key(store, job_id, HANDOFF_ID))

    finish(running)
    assert not store.connection.redis.exists(turns_key(store, job_id, HANDOFF_ID))


def test_a_handoff_that_was_claimed_too_often_is_granted_only_to_be_ended(
    store: Store, job_id: JobId
) -> None:
    for _ in range(MAX_CLAIMS):
        expire_lease(store, granted_claim(store, job_id, "find.1"))

    last = claim(store, job_id, "find.1")

    assert last.verdict is ClaimVerdict.EXHAUSTED
    assert finish(last) == 1


def test_a_released_claim_does_not_count(store: Store, job_id: JobId) -> None:
    for _ in range(3 * MAX_CLAIMS):
        granted_claim(store, job_id, "find.1").release()

    assert claim(store, job_id, "find.1").verdict is ClaimVerdict.GRANTED
    assert store.jobs.read_handoffs(job_id, [HANDOFF_ID])[HANDOFF_ID].claims == 1


def test_a_released_handoff_is_open_to_others_at_once_and_closed_to_its_old_claim(
    store: Store, job_id: JobId
) -> None:
    first = granted_claim(store, job_id, "find.1")
    first.checkpoint(model_reply())
    first.release()
    second = granted_claim(store, job_id, "find.1", "w2")

    assert second.load_earlier_checkpoints() == (model_reply(),)
    with pytest.raises(LeaseLost):
        first.renew()


def test_a_cancel_arrives_with_the_next_write_and_the_payment_is_recorded(
    store: Store, job_id: JobId
) -> None:
    running, other = granted_claim(store, job_id, "find.1"), granted_claim(store, job_id, "look.1")
    running.reserve(WorstCase(500, 100, 50))
    store.journal.append(job_id, CancelRequested(), {"cancelled": 1})

    with pytest.raises(Cancelled):
        running.checkpoint(model_reply(100, 20, 5))
    with pytest.raises(Cancelled):
        other.renew()
    with pytest.raises(Cancelled):
        running.heartbeat("thinking")
    assert store.connection.redis.llen(turns_key(store, job_id, HANDOFF_ID)) == 1
    assert store.jobs.read([job_id])[0].input_tokens == 100


def test_a_stopping_process_starts_no_turn_but_records_its_payment(
    store: Store, job_id: JobId
) -> None:
    running = granted_claim(store, job_id, "find.1")
    running.reserve(WorstCase(500, 100, 50))
    running.drain.begin(60.0)

    running.heartbeat("thinking")
    running.checkpoint(model_reply())
    with pytest.raises(Draining):
        running.reserve(WorstCase(500, 100, 50))


def test_after_the_grace_period_running_work_is_cut(store: Store, job_id: JobId) -> None:
    running = granted_claim(store, job_id, "find.1")
    running.drain.begin(0.0)

    with pytest.raises(Draining):
        running.heartbeat("thinking")


def test_a_final_reply_is_settled_with_the_end_of_its_handoff(store: Store, job_id: JobId) -> None:
    running = granted_claim(store, job_id, "find.1")
    running.reserve(WorstCase(500, 100, 50))
    running.checkpoint(model_reply(100, 20, 5, stop_reason="end_turn"))
    finish(running)

    assert store.jobs.read([job_id])[0].input_tokens == 100


def test_a_final_reply_that_was_not_the_end_is_not_lost_at_a_deploy(
    store: Store, job_id: JobId
) -> None:
    running = granted_claim(store, job_id, "find.1")
    running.reserve(WorstCase(500, 100, 50))
    running.checkpoint(model_reply(100, 20, 5, stop_reason="pause_turn"))
    running.drain.begin(60.0)
    with pytest.raises(Draining):
        running.reserve(WorstCase(500, 100, 50))
    running.release()

    assert granted_claim(store, job_id, "find.1", "w2").load_earlier_checkpoints() == (
        model_reply(100, 20, 5, stop_reason="pause_turn"),
    )
    assert store.jobs.read([job_id])[0].input_tokens == 100


def test_heartbeats_show_the_current_activity(store: Store, job_id: JobId) -> None:
    running = granted_claim(store, job_id, "find.1")

    def is_shown() -> bool:
        running.heartbeat("thinking", "A draft so far")
        return store.payloads.draft(job_id, HANDOFF_ID) != ""

    wait_until(is_shown, expected="a heartbeat")
    info = store.jobs.read_handoffs(job_id, [HANDOFF_ID])[HANDOFF_ID]
    shown = (info.state, info.worker, info.doing, store.payloads.draft(job_id, HANDOFF_ID))
    assert shown == ("running", "w1", "thinking", "A draft so far")
    assert info.lease_until is not None
    assert info.heartbeat_at is not None
    assert info.lease_until > info.heartbeat_at


def test_frequent_heartbeats_are_not_all_sent(store: Store, job_id: JobId) -> None:
    running = granted_claim(store, job_id, "find.1")
    before = store.connection.redis.info("commandstats")["cmdstat_evalsha"]["calls"]
    for _ in range(1_000):
        running.heartbeat("thinking")

    assert store.connection.redis.info("commandstats")["cmdstat_evalsha"]["calls"] - before <= 3


def test_a_handoff_is_not_blamed_if_each_of_its_claims_made_progress(
    store: Store, job_id: JobId
) -> None:
    for _ in range(3 * MAX_CLAIMS):
        killed = granted_claim(store, job_id, "find.1")
        killed.checkpoint(model_reply())
        expire_lease(store, killed)

    assert claim(store, job_id, "find.1").verdict is ClaimVerdict.GRANTED


def test_a_handoff_that_freezes_after_its_last_checkpoint_is_claimed_too_often(
    store: Store, job_id: JobId
) -> None:
    first = granted_claim(store, job_id, "find.1")
    first.checkpoint(model_reply())
    expire_lease(store, first)
    for _ in range(MAX_CLAIMS - 1):
        frozen = granted_claim(store, job_id, "find.1")
        frozen.reserve(WorstCase(500, 100, 50))
        frozen.renew()
        expire_lease(store, frozen)

    assert claim(store, job_id, "find.1").verdict is ClaimVerdict.EXHAUSTED


def test_a_released_claim_with_progress_does_not_count(store: Store, job_id: JobId) -> None:
    running = granted_claim(store, job_id, "find.1")
    running.checkpoint(model_reply())
    running.release()

    assert store.jobs.read_handoffs(job_id, [HANDOFF_ID])[HANDOFF_ID].claims == 0


def test_a_process_that_was_stopped_after_the_answer_makes_no_concurrent_call(
    store: Store, job_id: JobId
) -> None:
    own_claim = granted_claim(store, job_id, "find.1")
    own_claim.reserved = True
    own_claim.confirmed_at -= own_claim.lease_s + 1

    with pytest.raises(LeaseLost):
        own_claim.reserve(WorstCase(input_tokens=1, output_tokens=1, microusd=1))


@pytest.mark.parametrize(("issued_with", "own"), [(None, 100), (500, 100), (100, 500), (100, None)])
def test_a_handoff_spends_no_more_than_its_own_limit_and_that_of_the_claiming_process(
    store: Store, issued_with: int | None, own: int | None
) -> None:
    job_id = a_job(store)
    issue(store, job_id, "find.1", max_microusd=issued_with)
    request = ClaimRequest(
        job_id, HANDOFF_ID, compute_digest(text_of("find.1")), "w1", max_microusd=own
    )
    claimed = store.claims.claim(request)

    assert claimed.reserve(WorstCase(10, 10, 100)) is None
    claimed.reserved = False
    with pytest.raises(LimitReached) as reached:
        claimed.reserve(WorstCase(10, 10, 101))

    assert reached.value.level is Level.HANDOFF


def test_every_limit_of_a_handoff_that_redis_checks_comes_with_the_claim() -> None:
    limits = {name for name in HandoffIssued.model_fields if name.startswith("max_")}
    limits.discard("max_tokens")  # the worker checks it

    assert limits <= {field.name for field in fields(ClaimRequest)}
