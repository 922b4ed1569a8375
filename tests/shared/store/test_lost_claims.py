"""The store records which processes lost a claim, also after the handoff has continued."""

from __future__ import annotations

import pytest

from handoff_queue.shared.store.claim_requests import MAX_CLAIMS
from handoff_queue.shared.store.handoff_info import ClaimEnd
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.ids import JobId
from tests.doubles.jobs import expire_lease, granted_claim, model_reply
from tests.shared.store.conftest import HANDOFF_ID


@pytest.mark.parametrize("is_swept", [True, False])
def test_a_lost_process_stays_counted_after_progress(
    store: Store, job_id: JobId, is_swept: bool
) -> None:
    expire_lease(store, granted_claim(store, job_id, "find.1"))
    if is_swept:
        store.due_work.sweep()
    second = granted_claim(store, job_id, "find.1", "w2")
    second.checkpoint(model_reply())
    second.release()
    granted_claim(store, job_id, "find.1", "w3")

    info = store.jobs.read_handoffs(job_id, [HANDOFF_ID])[HANDOFF_ID]
    assert (info.claims, info.lost_claims, info.worker) == (1, 1, "w3")
    assert [(past_claim.worker, past_claim.left) for past_claim in info.past_claims] == [
        ("w1", ClaimEnd.LOST),
        ("w2", ClaimEnd.RELEASED),
    ]
    times = [
        info.started_at,
        *(
            at
            for past_claim in info.past_claims
            for at in (past_claim.began_at, past_claim.ended_at)
        ),
        info.claimed_at,
    ]
    assert times == sorted(at for at in times if at is not None)
    assert times[0] == times[1]


def test_each_lost_process_counts_and_a_released_claim_does_not(
    store: Store, job_id: JobId
) -> None:
    granted_claim(store, job_id, "find.1").release()
    for _ in range(MAX_CLAIMS):
        expire_lease(store, granted_claim(store, job_id, "find.1"))
        store.due_work.sweep()
        store.due_work.sweep()

    info = store.jobs.read_handoffs(job_id, [HANDOFF_ID])[HANDOFF_ID]
    assert (info.lost_claims, info.claimed_at) == (MAX_CLAIMS, None)
    assert [past_claim.left for past_claim in info.past_claims] == [
        ClaimEnd.RELEASED,
        *[ClaimEnd.LOST] * MAX_CLAIMS,
    ]


def test_a_deferred_handoff_is_recorded_as_deferred(store: Store, job_id: JobId) -> None:
    assert granted_claim(store, job_id, "find.1").defer(60, "rate limit")

    (past_claim,) = store.jobs.read_handoffs(job_id, [HANDOFF_ID])[HANDOFF_ID].past_claims
    assert (past_claim.worker, past_claim.left) == ("w1", ClaimEnd.DEFERRED)


def test_only_the_newest_lost_claims_are_kept(store: Store, job_id: JobId) -> None:
    for n in range(25):
        granted_claim(store, job_id, "find.1", f"w{n}").release()

    assert [
        past_claim.worker
        for past_claim in store.jobs.read_handoffs(job_id, [HANDOFF_ID])[HANDOFF_ID].past_claims
    ] == [f"w{n}" for n in range(5, 25)]
