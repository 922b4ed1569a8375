"""A deferred handoff has no queue and no owner. It keeps its place in the line and wakes at its
time.
"""

from __future__ import annotations

from hashlib import sha1

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim import ClaimVerdict, HandoffClaim
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.errors import Interrupted
from handoff_queue.shared.types.events import JobEnded, JobStatus
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.rate_limits import Allowance, ExpectedUsage, RateLimits
from tests.doubles.jobs import (
    a_job,
    claim,
    finish,
    granted_claim,
    handoff_key,
    issue,
    model_reply,
    nothing_reserved,
    version_of,
)
from tests.redis_clock import redis_time_s

A = HandoffId("a.1")
BUCKET = "account:some-model"
EXPECTED = ExpectedUsage(BUCKET, 1, 1)
WORST = WorstCase(100, 100, 0)


@pytest.fixture
def job_id(store: Store) -> JobId:
    job_id = a_job(store)
    issue(store, job_id, "a.1", "b.1")
    return job_id


def deferred_claim(store: Store, job_id: JobId, seconds: float = 60) -> HandoffClaim:
    """Return a deferred claim that made one turn and must wait for the next one."""
    claimed = granted_claim(store, job_id, "a.1")
    assert claimed.reserve(WORST, EXPECTED) is None
    claimed.report_limits(RateLimits(requests=Allowance(60, 0)))
    claimed.checkpoint(model_reply())
    assert claimed.reserve(WORST, EXPECTED) is not None
    assert claimed.defer(seconds, "rate limit")
    return claimed


def end_deferral(store: Store, job_id: JobId) -> None:
    store.connection.redis.hset(handoff_key(store, job_id, A), "deferred", 1)
    store.connection.redis.zadd(keys.due("researcher"), {f"{job_id}/a.1": 1})


def waiting_line(store: Store) -> list[bytes]:
    calls: list[bytes] = store.connection.redis.zrange(keys.bucket_line(BUCKET), 0, -1)
    return calls


def name_of_call(job_id: JobId, handoff_id: str) -> bytes:
    return sha1(f"{job_id}/{handoff_id}".encode()).hexdigest().encode()


def test_the_wait_and_its_reason_are_shown(store: Store, job_id: JobId) -> None:
    before = redis_time_s(store)
    deferred_claim(store, job_id, 60)
    info = store.jobs.read_handoffs(job_id, [A])[A]
    assert (info.state, info.claims, info.doing, info.waits) == (
        "issued",
        0,
        "rate limit",
        True,
    )
    assert before <= (info.deferred_until or 0) - 60 <= redis_time_s(store)
    assert nothing_reserved(store, job_id)


def test_the_old_claim_of_a_deferred_handoff_can_write_no_more(store: Store, job_id: JobId) -> None:
    claimed = deferred_claim(store, job_id)
    with pytest.raises(Interrupted):
        claimed.checkpoint(model_reply())
    assert not claimed.defer(1, "again")


def test_a_second_message_does_not_run_a_deferred_handoff_early(
    store: Store, job_id: JobId
) -> None:
    deferred_claim(store, job_id)
    assert claim(store, job_id, "a.1").verdict is ClaimVerdict.DEFERRED
    assert store.jobs.read_handoffs(job_id, [A])[A].claims == 0


def test_a_deferred_handoff_is_not_searched_before_its_time(store: Store, job_id: JobId) -> None:
    deferred_claim(store, job_id)
    assert A not in store.due_work.sweep().due.get(job_id, [])


def test_a_deferred_handoff_is_found_in_time_and_continues_after_its_last_turn(
    store: Store, job_id: JobId
) -> None:
    deferred_claim(store, job_id)
    end_deferral(store, job_id)
    assert store.due_work.sweep().due == {job_id: [A]}
    info = store.jobs.read_handoffs(job_id, [A])[A]
    assert (info.lost, info.waits, info.deferred_until) == (True, False, None)
    again = granted_claim(store, job_id, "a.1")
    assert again.load_earlier_checkpoints() == (model_reply(),)
    assert store.jobs.read_handoffs(job_id, [A])[A].claims == 1


def test_the_chord_of_a_deferred_handoff_waits(store: Store, job_id: JobId) -> None:
    deferred_claim(store, job_id)
    assert finish(granted_claim(store, job_id, "b.1")) == 1


def test_a_deferred_handoff_keeps_its_place_in_the_line(store: Store, job_id: JobId) -> None:
    deferred_claim(store, job_id)
    later = granted_claim(store, job_id, "b.1")
    assert later.reserve(WORST, EXPECTED) is not None
    end_deferral(store, job_id)
    again = granted_claim(store, job_id, "a.1")
    assert again.reserve(WORST, EXPECTED) is not None
    assert waiting_line(store) == [name_of_call(job_id, "a.1"), name_of_call(job_id, "b.1")]


def test_a_handoff_of_an_ended_job_leaves_the_line(store: Store, job_id: JobId) -> None:
    deferred_claim(store, job_id)
    assert waiting_line(store) == [name_of_call(job_id, "a.1")]
    ended = JobEnded(status=JobStatus.CANCELLED, answer=None, reason="cancelled by the user")
    store.journal.commit(
        Commit(job_id=job_id, expected=version_of(store, job_id), events=[ended], drop=[A])
    )
    assert waiting_line(store) == []
