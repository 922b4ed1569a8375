"""The record of processes that were lost with a claim, after the handoff has continued."""

from __future__ import annotations

import pytest

from handoff_queue.shared.store.claim_history import ClaimEnd
from handoff_queue.shared.store.claims import MAX_CLAIMS
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.ids import JobId
from tests.doubles.jobs import expire_lease, granted, replied
from tests.shared.store.conftest import ONE


@pytest.mark.parametrize("is_swept", [True, False])
def test_a_lost_process_stays_counted_after_progress(
    store: Store, job_id: JobId, is_swept: bool
) -> None:
    expire_lease(store, granted(store, job_id, "find.1"))
    if is_swept:
        store.jobs.sweep()
    second = granted(store, job_id, "find.1", "w2")
    second.checkpoint(replied())
    second.release()
    granted(store, job_id, "find.1", "w3")

    found = store.jobs.handoffs(job_id, [ONE])[ONE]
    assert (found.claims, found.lost_claims, found.worker) == (1, 1, "w3")
    assert [(one.worker, one.left) for one in found.stints] == [
        ("w1", ClaimEnd.LOST),
        ("w2", ClaimEnd.BACK),
    ]
    times = [
        found.started_at,
        *(at for one in found.stints for at in (one.began_at, one.ended_at)),
        found.claimed_at,
    ]
    assert times == sorted(at for at in times if at is not None)
    assert times[0] == times[1]


def test_each_lost_process_counts_and_a_released_claim_does_not(
    store: Store, job_id: JobId
) -> None:
    granted(store, job_id, "find.1").release()
    for _ in range(MAX_CLAIMS):
        expire_lease(store, granted(store, job_id, "find.1"))
        store.jobs.sweep()
        store.jobs.sweep()

    found = store.jobs.handoffs(job_id, [ONE])[ONE]
    assert (found.lost_claims, found.claimed_at) == (MAX_CLAIMS, None)
    assert [one.left for one in found.stints] == [ClaimEnd.BACK, *[ClaimEnd.LOST] * MAX_CLAIMS]


def test_a_handoff_that_is_parked_says_so(store: Store, job_id: JobId) -> None:
    assert granted(store, job_id, "find.1").park(60, "rate limit")

    (stint,) = store.jobs.handoffs(job_id, [ONE])[ONE].stints
    assert (stint.worker, stint.left) == ("w1", ClaimEnd.THROTTLED)


def test_only_the_newest_are_kept(store: Store, job_id: JobId) -> None:
    for n in range(25):
        granted(store, job_id, "find.1", f"w{n}").release()

    assert [one.worker for one in store.jobs.handoffs(job_id, [ONE])[ONE].stints] == [
        f"w{n}" for n in range(5, 25)
    ]
