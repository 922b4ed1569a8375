"""Retention starts at the end of a job's time. A deleted job stays deleted while workers run its
handoffs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim import ClaimVerdict, HandoffClaim
from handoff_queue.shared.store.claim_requests import ClaimRequest
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.errors import Cancelled
from handoff_queue.shared.types.events import ApprovalAsked, Event, JobEnded, JobStatus
from handoff_queue.shared.types.handoff import Document
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.job_options import ApprovalOf
from handoff_queue.shared.types.message import compute_digest
from tests.doubles.jobs import (
    a_job,
    claim,
    finish,
    granted_claim,
    issue,
    issue_to_a_child,
    model_reply,
    redis_dump,
    text_of,
    turns_key,
    version_of,
)

HANDOFF_ID = HandoffId("find.1")
KEEP_S, JOB_S = 100, 10_000
TWO_HOURS_S = 2 * 3_600
WEEK_S, MONTH_S = 7 * 86_400, 30 * 86_400


@pytest.fixture
def store(redis_url: str) -> Iterator[Store]:
    """Yield a store that keeps jobs for less than their time limit."""
    opened = open_store(redis_url, Settings(lease_s=3_600, retention_s=KEEP_S))
    yield opened
    opened.connection.close()


@pytest.fixture
def job_id(store: Store) -> JobId:
    """Return a job with two handoffs. It may run for `JOB_S`."""
    job_id = a_job(store)
    issue(store, job_id, "find.1", "look.1", job_s=JOB_S)
    return job_id


def long_claim(store: Store, job_id: JobId) -> HandoffClaim:
    deadline = store.connection.now() + JOB_S
    return store.claims.claim(
        ClaimRequest(
            job_id, HANDOFF_ID, compute_digest(text_of(HANDOFF_ID)), "w1", deadline=deadline
        )
    )


def keys_of(job_id: JobId) -> list[str]:
    return [
        keys.job(job_id),
        keys.progress(job_id),
        keys.log(job_id),
        keys.blobs(job_id),
        keys.agents(job_id),
        keys.handoff(job_id, "researcher", HANDOFF_ID),
    ]


def shortest_s(store: Store, names: list[str]) -> int:
    return min(int(store.connection.redis.ttl(name)) for name in names)


def test_a_decision_keeps_its_job_for_the_job_s_time_and_the_retention(
    store: Store, job_id: JobId
) -> None:
    assert shortest_s(store, keys_of(job_id)) > JOB_S + KEEP_S / 2


def test_fetched_pages_stay_as_long_as_their_job(store: Store, job_id: JobId) -> None:
    page = Document(
        path="https://example.org/a", digest=compute_digest("text"), media_type="text/html", chars=4
    )
    store.payloads.put_fetched_page(job_id, page, "text")

    assert shortest_s(store, [keys.fetched_pages(job_id)]) > JOB_S + KEEP_S / 2


def test_a_job_that_has_ended_gets_no_more_pages(store: Store, job_id: JobId) -> None:
    page = Document(
        path="https://example.org/a", digest=compute_digest("text"), media_type="text/html", chars=4
    )
    store.connection.redis.hset(keys.job(job_id), "status", JobStatus.CANCELLED.value)

    store.payloads.put_fetched_page(job_id, page, "text")

    assert store.payloads.load_fetched_pages(job_id) == []


def test_a_decision_does_not_shorten_the_retention_of_a_running_job(
    store: Store, job_id: JobId
) -> None:
    issue(store, job_id, "read.1", group="g2")

    assert shortest_s(store, keys_of(job_id)) > JOB_S + KEEP_S / 2


def test_checkpoints_stay_as_long_as_their_job(store: Store, job_id: JobId) -> None:
    long_claim(store, job_id).checkpoint(model_reply())

    assert shortest_s(store, [keys.turns(job_id, "researcher", HANDOFF_ID)]) > JOB_S + KEEP_S / 2


@pytest.mark.parametrize("keep_turns", [False, True])
def test_turns_are_deleted_at_the_end_of_a_handoff_unless_they_are_kept_on_request(
    redis_url: str, *, keep_turns: bool
) -> None:
    store = open_store(
        redis_url, Settings(lease_s=3_600, retention_s=KEEP_S, keep_turns=keep_turns)
    )
    job_id = a_job(store)
    issue(store, job_id, HANDOFF_ID)
    claimed = granted_claim(store, job_id, HANDOFF_ID)
    claimed.checkpoint(model_reply())
    finish(claimed)

    assert store.claims.read_checkpoints(job_id, [HANDOFF_ID]) == (
        {HANDOFF_ID: (model_reply(),)} if keep_turns else {}
    )
    assert (store.connection.redis.ttl(turns_key(store, job_id, HANDOFF_ID)) > 0) == keep_turns
    store.connection.close()


def test_a_longer_retention_is_not_shortened(store: Store, job_id: JobId) -> None:
    store.connection.redis.expire(keys.job(job_id), 9 * JOB_S)

    issue(store, job_id, "read.1", group="g2", job_s=JOB_S)

    assert shortest_s(store, [keys.job(job_id)]) > 8 * JOB_S


@pytest.fixture
def week_store(redis_url: str) -> Iterator[Store]:
    """Yield a store that keeps ended jobs for a week."""
    opened = open_store(redis_url, Settings(lease_s=3_600, retention_s=WEEK_S))
    yield opened
    opened.connection.close()


def decide(store: Store, job_id: JobId, event: Event) -> None:
    """Append a decision of the supervisor."""
    expected = version_of(store, job_id)
    store.journal.commit(Commit(job_id=job_id, expected=expected, events=[event]))


def wait_for_approval(store: Store, job_id: JobId) -> None:
    """Let the job wait for a person and then continue."""
    decide(
        store, job_id, ApprovalAsked(what=ApprovalOf.PLAN, why="it was asked for", wait_s=MONTH_S)
    )
    issue(store, job_id, HANDOFF_ID)


def longest_s(store: Store, names: list[str]) -> int:
    return max(int(store.connection.redis.ttl(name)) for name in names)


def test_a_job_that_waits_for_a_person_stays_for_the_wait_and_the_retention(
    week_store: Store,
) -> None:
    job_id = a_job(week_store)

    wait_for_approval(week_store, job_id)

    assert shortest_s(week_store, keys_of(job_id)) > MONTH_S + WEEK_S / 2


def test_a_job_that_has_ended_stays_for_the_retention_and_not_for_the_longest_wait(
    week_store: Store,
) -> None:
    job_id = a_job(week_store)
    wait_for_approval(week_store, job_id)

    decide(week_store, job_id, JobEnded(status=JobStatus.OK))

    assert shortest_s(week_store, keys_of(job_id)) > 0
    assert longest_s(week_store, keys_of(job_id)) <= WEEK_S


@pytest.mark.slow
def test_an_ended_job_with_thousands_of_events_leaves_no_handoff_for_longer(
    week_store: Store,
) -> None:
    job_id = a_job(week_store)
    wait_for_approval(week_store, job_id)
    names = [f"many{n}.1" for n in range(2_500)]
    issue(week_store, job_id, *names)

    decide(week_store, job_id, JobEnded(status=JobStatus.OK))

    handoffs = [keys.handoff(job_id, "researcher", HandoffId(name)) for name in names]
    assert longest_s(week_store, handoffs) <= WEEK_S


def test_a_child_job_that_has_ended_stays_as_long_as_its_parent_is_at_work(
    week_store: Store,
) -> None:
    job_id = a_job(week_store)
    issue_to_a_child(week_store, job_id, "team.1")
    child = a_job(week_store, "default", (job_id, HandoffId("team.1")))
    wait_for_approval(week_store, job_id)

    decide(week_store, child, JobEnded(status=JobStatus.OK))
    assert int(week_store.connection.redis.ttl(keys.job(child))) > MONTH_S

    decide(week_store, job_id, JobEnded(status=JobStatus.OK))
    assert 0 < int(week_store.connection.redis.ttl(keys.job(child))) <= WEEK_S


def test_a_job_with_a_short_retention_stays_until_its_webhook_has_been_tried(
    store: Store, job_id: JobId
) -> None:
    question = ApprovalAsked(what=ApprovalOf.PLAN, why="asked for", wait_s=MONTH_S)
    decide(store, job_id, question)

    decide(store, job_id, JobEnded(status=JobStatus.OK))

    assert KEEP_S < int(store.connection.redis.ttl(keys.job(job_id))) <= TWO_HOURS_S


def test_a_handoff_that_its_job_has_left_behind_is_unknown(store: Store, job_id: JobId) -> None:
    store.connection.redis.delete(keys.job(job_id))
    before = redis_dump(store)

    assert claim(store, job_id, "find.1").verdict is ClaimVerdict.UNKNOWN
    assert redis_dump(store) == before


@pytest.mark.parametrize(
    "word",
    [
        HandoffClaim.renew,
        lambda claimed: claimed.checkpoint(model_reply()),
        lambda claimed: claimed.reserve(WorstCase(1, 1, 1)),
    ],
    ids=["renewal", "checkpoint", "reservation"],
)
def test_a_worker_of_a_deleted_job_gets_an_error_and_writes_nothing(
    store: Store, job_id: JobId, word: Callable[[HandoffClaim], None]
) -> None:
    claimed = granted_claim(store, job_id, "find.1")
    store.connection.redis.delete(keys.job(job_id))
    before = redis_dump(store)

    with pytest.raises(Cancelled):
        word(claimed)
    claimed.release()
    assert redis_dump(store) == before
