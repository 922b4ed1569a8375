"""The end of a handoff, the decision on its result and the claim of the next handoff are one step.
The end is stored even if the decision is refused.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim import Claim, ClaimVerdict
from handoff_queue.shared.store.claims import ClaimRequest, FinishedWithCommit
from handoff_queue.shared.store.finish_request import FinishRequest
from handoff_queue.shared.store.job_summary import HandoffTally
from handoff_queue.shared.store.journal import Commit
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.errors import LeaseLost
from handoff_queue.shared.types.events import CancelRequested, JobEnded, JobStatus
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.message import digest_of
from tests.doubles.jobs import (
    a_job,
    claim,
    expire_lease,
    finish,
    finished,
    granted,
    issue,
    issued,
    replied,
    result_of,
    text_of,
)
from tests.doubles.jobs import version_of as version_in
from tests.doubles.sweep_states import add_unfinished_evaluations, count_unfinished_evaluations

FIRST, NEXT, STEP = HandoffId("planner.1"), HandoffId("assessor.1"), HandoffId("find.1")
LOOK = "0123456789abcdef"


@pytest.fixture
def job_id(store: Store) -> JobId:
    """A job with an open planner and an open step."""
    job_id = a_job(store, max_turns=10)
    issue(store, job_id, STEP)
    issue(store, job_id, FIRST, role="planner", group=None)
    return job_id


@pytest.fixture
def held(store: Store, job_id: JobId) -> Claim:
    """The claim of the planner, whose model has answered."""
    wanted = ClaimRequest(job_id, FIRST, digest_of(text_of(FIRST)), "supervisor:1", look=LOOK)
    made = store.claims.claim(wanted)
    made.reserve(WorstCase(10, 10, 0))
    made.checkpoint(replied(), may_wait=True)
    return made


def end_of(held: Claim) -> FinishRequest:
    result = result_of(held)
    return held.end(result, (finished(result),))


def next_role(store: Store, job_id: JobId) -> Commit:
    """A decision on the version before the end."""
    return Commit(
        job_id=job_id,
        expected=version_in(store, job_id),
        events=[issued(NEXT, "assessor", group=None)],
        look=LOOK,
    )


def wanted(job_id: JobId) -> ClaimRequest:
    return ClaimRequest(
        job_id, NEXT, digest_of(text_of(NEXT)), "supervisor:1", WorstCase(10, 10, 0)
    )


def followed(store: Store, held: Claim) -> FinishedWithCommit:
    return store.claims.end_and_commit(
        held, end_of(held), next_role(store, held.job_id), wanted(held.job_id)
    )


def kinds(store: Store, job_id: JobId) -> list[str]:
    return [one.event.type for one in store.journal.read(job_id, 3)]


def test_both_events_are_in_the_journal_in_order(store: Store, job_id: JobId, held: Claim) -> None:
    done = followed(store, held)

    assert kinds(store, job_id) == ["handoff_finished", "handoff_issued"]
    assert (*done.finished.recorded, *done.recorded) == tuple(store.journal.read(job_id, 3))


def test_the_next_handoff_is_claimed_with_them(store: Store, job_id: JobId, held: Claim) -> None:
    done = followed(store, held)

    assert done.claim is not None
    assert (done.claim.verdict, done.claim.reserved) == (ClaimVerdict.GRANTED, True)
    assert claim(store, job_id, NEXT, "supervisor:2").verdict is ClaimVerdict.BUSY
    assert claim(store, job_id, FIRST, "supervisor:2").verdict is ClaimVerdict.DUPLICATE


def test_the_first_handoffs_cost_is_booked_before_the_next_reservation(
    store: Store, job_id: JobId, held: Claim
) -> None:
    followed(store, held)

    assert store.connection.redis.hmget(keys.job(job_id), "turns", "reserved_turns") == [
        b"1",
        b"1",
    ]


def test_the_evaluation_ends_with_them(store: Store, job_id: JobId, held: Claim) -> None:
    followed(store, held)

    assert count_unfinished_evaluations(store, job_id) == 0


def test_an_overtaken_decision_leaves_the_end_and_its_evaluation_recorded(
    store: Store, job_id: JobId, held: Claim
) -> None:
    order = next_role(store, job_id)
    store.journal.append(job_id, CancelRequested())

    done = store.claims.end_and_commit(held, end_of(held), order, wanted(job_id))

    assert (done.recorded, done.claim) == ((), None)
    assert kinds(store, job_id) == ["cancel_requested", "handoff_finished"]
    assert list(done.finished.recorded) == store.journal.read(job_id, 4)
    assert count_unfinished_evaluations(store, job_id) == 1


def test_no_step_is_issued_past_a_result_that_arrived_in_between(
    store: Store, job_id: JobId, held: Claim
) -> None:
    """The results' own wake-ups found nothing to do while the role ran. The next decision must
    include the results.
    """
    order = replace(next_role(store, job_id), events=[issued("write.1", group="g2")])
    finish(granted(store, job_id, STEP))

    done = store.claims.end_and_commit(held, end_of(held), order, None)

    assert done.recorded == ()
    assert kinds(store, job_id) == ["handoff_finished", "handoff_finished"]


def test_earlier_evaluations_of_others_do_not_stay_recorded(
    store: Store, job_id: JobId, held: Claim
) -> None:
    """A later evaluation that completes also covers the earlier evaluations of the job."""
    add_unfinished_evaluations(store, job_id, 60, 40, 20)
    followed(store, held)

    assert count_unfinished_evaluations(store, job_id) == 0


def test_the_counts_of_handoffs_continue(store: Store, job_id: JobId, held: Claim) -> None:
    followed(store, held)

    assert store.job_summaries.of(job_id).tally == HandoffTally(
        issued=3, ok=1, partial=0, needs_input=0, failed=0, dropped=0
    )


def test_a_lost_claim_writes_nothing(store: Store, job_id: JobId, held: Claim) -> None:
    expire_lease(store, held)
    claim(store, job_id, FIRST, "supervisor:2")

    with pytest.raises(LeaseLost):
        followed(store, held)

    assert kinds(store, job_id) == []


def test_a_repeated_request_ends_the_handoff_once_and_decides_once(
    store: Store, job_id: JobId, held: Claim
) -> None:
    """The first answer was lost."""
    end, order = end_of(held), next_role(store, job_id)
    first = store.claims.end_and_commit(held, end, order, wanted(job_id))

    again = store.claims.end_and_commit(held, end, order, wanted(job_id))

    assert (again.finished, again.recorded) == (first.finished, ())
    assert held.finish(end) == first.finished
    assert kinds(store, job_id) == ["handoff_finished", "handoff_issued"]
    assert store.connection.redis.hmget(keys.job(job_id), "turns", "reserved_turns") == [
        b"1",
        b"1",
    ]


def test_the_payloads_of_both_are_stored(store: Store, job_id: JobId, held: Claim) -> None:
    order = replace(next_role(store, job_id), payloads=["what is decided"])
    store.claims.end_and_commit(held, end_of(held), order, None)

    digests = [digest_of("what is decided"), result_of(held).content_digest]
    assert set(store.payloads.get(job_id, digests)) == set(digests)


def test_the_end_of_the_job_can_follow(store: Store, job_id: JobId, held: Claim) -> None:
    order = replace(
        next_role(store, job_id),
        events=[JobEnded(status=JobStatus.OK)],
        drop=[STEP],
        fields={"status": "ok"},
    )
    store.claims.end_and_commit(held, end_of(held), order, None)

    assert kinds(store, job_id) == ["handoff_finished", "job_ended"]
    assert store.jobs.handoffs(job_id, [STEP])[STEP].state == "dropped"
