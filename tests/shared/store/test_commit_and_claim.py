"""A decision and the claim of the handoff that it issues are one atomic step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from handoff_queue.shared.store.claim import ClaimVerdict
from handoff_queue.shared.store.claim_requests import ClaimRequest
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.errors import VersionConflict
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.message import compute_digest
from tests.doubles.jobs import a_job, claim, issued_event, text_of, version_of

ROLE = HandoffId("planner.1")


@pytest.fixture
def job_id(store: Store) -> JobId:
    return a_job(store, max_turns=1)


def decision(store: Store, job_id: JobId) -> Commit:
    return Commit(
        job_id=job_id,
        expected=version_of(store, job_id),
        events=[issued_event(ROLE, "planner", group=None)],
    )


def claim_request(job_id: JobId) -> ClaimRequest:
    return ClaimRequest(
        job_id, ROLE, compute_digest(text_of(ROLE)), "supervisor:1", WorstCase(10, 10, 0)
    )


def test_an_issued_handoff_is_claimed_with_its_decision(store: Store, job_id: JobId) -> None:
    recorded, claimed = store.claims.commit_and_claim(
        decision(store, job_id), claim_request(job_id)
    )

    assert [item.event.type for item in recorded] == ["handoff_issued"]
    assert (claimed.verdict, claimed.reserved) == (ClaimVerdict.GRANTED, True)
    assert store.jobs.read_handoffs(job_id, [ROLE])[ROLE].worker == "supervisor:1"
    assert claim(store, job_id, ROLE, "supervisor:2").verdict is ClaimVerdict.BUSY


def test_an_overtaken_decision_claims_nothing(store: Store, job_id: JobId) -> None:
    late = replace(decision(store, job_id), expected=0)

    with pytest.raises(VersionConflict):
        store.claims.commit_and_claim(late, claim_request(job_id))

    assert store.jobs.read_handoffs(job_id, [ROLE]) == {}


def test_a_refused_claim_does_not_undo_the_decision(store: Store, job_id: JobId) -> None:
    forged = replace(claim_request(job_id), digest=compute_digest("something else"))

    recorded, claimed = store.claims.commit_and_claim(decision(store, job_id), forged)

    assert len(recorded) == 1
    assert claimed.verdict is ClaimVerdict.UNKNOWN
    assert claim(store, job_id, ROLE).verdict is ClaimVerdict.GRANTED
