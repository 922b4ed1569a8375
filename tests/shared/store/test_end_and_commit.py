"""The end of a handoff, the decision on its result and the next claim are one step. A refused
decision does not lose the end.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim import ClaimVerdict, FinishRequest, HandoffClaim
from handoff_queue.shared.store.claim_requests import ClaimRequest, FinishedWithCommit
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.job_summary import HandoffTally
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.errors import LeaseLost, MessagesWaiting
from handoff_queue.shared.types.events import CancelRequested, JobEnded, JobStatus, UserMessageSent
from handoff_queue.shared.types.handoff import make_ref
from handoff_queue.shared.types.ids import HandoffId, JobId, create_word
from handoff_queue.shared.types.message import compute_digest
from tests.doubles.jobs import (
    a_job,
    claim,
    expire_lease,
    finish,
    finished_event,
    granted_claim,
    issue,
    issued_event,
    model_reply,
    result_of,
    text_of,
)
from tests.doubles.jobs import version_of as version_in
from tests.doubles.sweep_states import add_unfinished_evaluations, count_unfinished_evaluations

FIRST, NEXT, STEP = HandoffId("planner.1"), HandoffId("assessor.1"), HandoffId("find.1")
LOOK = "0123456789abcdef"


@pytest.fixture
def job_id(store: Store) -> JobId:
    """Return a job with an open planner and an open step."""
    job_id = a_job(store, max_turns=10)
    issue(store, job_id, STEP)
    issue(store, job_id, FIRST, role="planner", group=None)
    return job_id


@pytest.fixture
def planner_claim(store: Store, job_id: JobId) -> HandoffClaim:
    """Return the claim of the planner after the model's reply."""
    request = ClaimRequest(
        job_id, FIRST, compute_digest(text_of(FIRST)), "supervisor:1", evaluation_id=LOOK
    )
    claimed = store.claims.claim(request)
    claimed.reserve(WorstCase(10, 10, 0))
    claimed.checkpoint(model_reply(), deferrable=True)
    return claimed


def end_of(planner_claim: HandoffClaim) -> FinishRequest:
    result = result_of(planner_claim)
    return planner_claim.build_finish_request(result, (finished_event(result),))


def next_decision(store: Store, job_id: JobId) -> Commit:
    """Return a decision on the version before the planner's end."""
    return Commit(
        job_id=job_id,
        expected=version_in(store, job_id),
        events=[issued_event(NEXT, "assessor", group=None)],
        evaluation_id=LOOK,
    )


def next_claim(job_id: JobId) -> ClaimRequest:
    return ClaimRequest(
        job_id, NEXT, compute_digest(text_of(NEXT)), "supervisor:1", WorstCase(10, 10, 0)
    )


def end_and_continue(store: Store, planner_claim: HandoffClaim) -> FinishedWithCommit:
    return store.claims.end_and_commit(
        planner_claim,
        end_of(planner_claim),
        next_decision(store, planner_claim.job_id),
        next_claim(planner_claim.job_id),
    )


def event_types(store: Store, job_id: JobId) -> list[str]:
    return [recorded.event.type for recorded in store.journal.read(job_id, 3)]


def test_both_events_are_in_the_journal_in_order(
    store: Store, job_id: JobId, planner_claim: HandoffClaim
) -> None:
    finished_commit = end_and_continue(store, planner_claim)

    assert event_types(store, job_id) == ["handoff_finished", "handoff_issued"]
    assert (*finished_commit.finished.recorded, *finished_commit.recorded) == tuple(
        store.journal.read(job_id, 3)
    )


def test_a_role_that_must_take_a_message_neither_ends_nor_commits(
    store: Store, job_id: JobId, planner_claim: HandoffClaim
) -> None:
    decision, result = next_decision(store, job_id), result_of(planner_claim)
    event = UserMessageSent(message_id=create_word(), text=make_ref("Shorter."))
    store.user_messages.send(job_id, event, "Shorter.")
    end = planner_claim.build_finish_request(result, (finished_event(result),), takes_messages=True)

    with pytest.raises(MessagesWaiting):
        store.claims.end_and_commit(planner_claim, end, decision, next_claim(job_id))

    assert event_types(store, job_id) == ["user_message_sent"]
    (message,) = planner_claim.take_messages(2)
    assert message.text == "Shorter."
    finished_commit = store.claims.end_and_commit(
        planner_claim, end_of(planner_claim), decision, next_claim(job_id)
    )
    assert [recorded.event.type for recorded in finished_commit.finished.recorded] == [
        "handoff_finished"
    ]
    assert finished_commit.recorded == (), "the decision has not read the message"


def test_the_next_handoff_is_claimed_in_the_same_step(
    store: Store, job_id: JobId, planner_claim: HandoffClaim
) -> None:
    finished_commit = end_and_continue(store, planner_claim)

    assert finished_commit.claim is not None
    assert (finished_commit.claim.verdict, finished_commit.claim.reserved) == (
        ClaimVerdict.GRANTED,
        True,
    )
    assert claim(store, job_id, NEXT, "supervisor:2").verdict is ClaimVerdict.BUSY
    assert claim(store, job_id, FIRST, "supervisor:2").verdict is ClaimVerdict.DUPLICATE


def test_the_first_handoffs_cost_is_booked_before_the_next_reservation(
    store: Store, job_id: JobId, planner_claim: HandoffClaim
) -> None:
    end_and_continue(store, planner_claim)

    assert store.connection.redis.hmget(keys.progress(job_id), "turns", "reserved_turns") == [
        b"1",
        b"1",
    ]


def test_the_evaluation_ends_in_the_same_step(
    store: Store, job_id: JobId, planner_claim: HandoffClaim
) -> None:
    end_and_continue(store, planner_claim)

    assert count_unfinished_evaluations(store, job_id) == 0


def test_an_overtaken_decision_leaves_the_end_and_its_evaluation_recorded(
    store: Store, job_id: JobId, planner_claim: HandoffClaim
) -> None:
    order = next_decision(store, job_id)
    store.journal.append(job_id, CancelRequested())

    finished_commit = store.claims.end_and_commit(
        planner_claim, end_of(planner_claim), order, next_claim(job_id)
    )

    assert (finished_commit.recorded, finished_commit.claim) == ((), None)
    assert event_types(store, job_id) == ["cancel_requested", "handoff_finished"]
    assert list(finished_commit.finished.recorded) == store.journal.read(job_id, 4)
    assert count_unfinished_evaluations(store, job_id) == 1


def test_no_step_is_issued_past_a_result_that_arrived_in_between(
    store: Store, job_id: JobId, planner_claim: HandoffClaim
) -> None:
    """The wake-ups of the results found nothing to do while the role ran. The next decision must
    include the results.
    """
    order = replace(next_decision(store, job_id), events=[issued_event("write.1", group="g2")])
    finish(granted_claim(store, job_id, STEP))

    finished_commit = store.claims.end_and_commit(planner_claim, end_of(planner_claim), order, None)

    assert finished_commit.recorded == ()
    assert event_types(store, job_id) == ["handoff_finished", "handoff_finished"]


def test_earlier_evaluations_of_other_processes_do_not_stay_recorded(
    store: Store, job_id: JobId, planner_claim: HandoffClaim
) -> None:
    """A completed evaluation also covers the earlier evaluations of the job."""
    add_unfinished_evaluations(store, job_id, 60, 40, 20)
    end_and_continue(store, planner_claim)

    assert count_unfinished_evaluations(store, job_id) == 0


def test_the_counts_of_handoffs_continue(
    store: Store, job_id: JobId, planner_claim: HandoffClaim
) -> None:
    end_and_continue(store, planner_claim)

    assert store.job_summaries.read(job_id).tally == HandoffTally(
        issued=3, ok=1, partial=0, needs_input=0, failed=0, dropped=0
    )


def test_a_lost_claim_writes_nothing(
    store: Store, job_id: JobId, planner_claim: HandoffClaim
) -> None:
    expire_lease(store, planner_claim)
    claim(store, job_id, FIRST, "supervisor:2")

    with pytest.raises(LeaseLost):
        end_and_continue(store, planner_claim)

    assert event_types(store, job_id) == []


def test_a_repeated_request_ends_the_handoff_once_and_decides_once(
    store: Store, job_id: JobId, planner_claim: HandoffClaim
) -> None:
    """The first answer was lost."""
    end, order = end_of(planner_claim), next_decision(store, job_id)
    first = store.claims.end_and_commit(planner_claim, end, order, next_claim(job_id))

    again = store.claims.end_and_commit(planner_claim, end, order, next_claim(job_id))

    assert (again.finished, again.recorded) == (first.finished, ())
    assert planner_claim.finish(end) == first.finished
    assert event_types(store, job_id) == ["handoff_finished", "handoff_issued"]
    assert store.connection.redis.hmget(keys.progress(job_id), "turns", "reserved_turns") == [
        b"1",
        b"1",
    ]


def test_the_payloads_of_both_are_stored(
    store: Store, job_id: JobId, planner_claim: HandoffClaim
) -> None:
    order = replace(next_decision(store, job_id), payloads=["what is decided"])
    store.claims.end_and_commit(planner_claim, end_of(planner_claim), order, None)

    digests = [compute_digest("what is decided"), result_of(planner_claim).content_digest]
    assert set(store.payloads.get(job_id, digests)) == set(digests)


def test_the_end_of_the_job_can_follow(
    store: Store, job_id: JobId, planner_claim: HandoffClaim
) -> None:
    order = replace(
        next_decision(store, job_id),
        events=[JobEnded(status=JobStatus.OK)],
        drop=[STEP],
        fields={"status": "ok"},
    )
    store.claims.end_and_commit(planner_claim, end_of(planner_claim), order, None)

    assert event_types(store, job_id) == ["handoff_finished", "job_ended"]
    assert store.jobs.read_handoffs(job_id, [STEP])[STEP].state == "dropped"
