"""Retention begins when a job's time is over; a job that was deleted stays deleted, whoever
still works for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim import Claim, ClaimVerdict
from handoff_queue.shared.store.claims import ClaimRequest
from handoff_queue.shared.store.journal import Commit
from handoff_queue.shared.store.store import Ledger, open_ledger
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.errors import Cancelled
from handoff_queue.shared.types.events import ApprovalAsked, Event, JobEnded, JobStatus
from handoff_queue.shared.types.handoff import Document
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.job_options import ApprovalOf
from handoff_queue.shared.types.message import digest_of
from tests.doubles.jobs import (
    a_job,
    claim,
    everything,
    finish,
    granted,
    issue,
    issue_to_a_child,
    replied,
    text_of,
    version_of,
)

ONE = HandoffId("find.1")
KEEP_S, JOB_S = 100, 10_000
TWO_HOURS_S = 2 * 3_600
WEEK_S, MONTH_S = 7 * 86_400, 30 * 86_400


@pytest.fixture
def ledger(redis_url: str) -> Iterator[Ledger]:
    """One that keeps jobs for less time than they may take."""
    opened = open_ledger(redis_url, Settings(lease_s=3_600, retention_s=KEEP_S))
    yield opened
    opened.connection.close()


@pytest.fixture
def job_id(ledger: Ledger) -> JobId:
    job_id = a_job(ledger)
    issue(ledger, job_id, "find.1", "look.1")
    return job_id


def long_claim(ledger: Ledger, job_id: JobId) -> Claim:
    deadline = ledger.connection.now() + JOB_S
    return ledger.claims.claim(
        ClaimRequest(job_id, ONE, digest_of(text_of(ONE)), "w1", deadline=deadline)
    )


def keys_of(job_id: JobId) -> list[str]:
    return [keys.job(job_id), keys.log(job_id), keys.blobs(job_id), keys.handoff(job_id, ONE)]


def shortest_s(ledger: Ledger, names: list[str]) -> int:
    return min(int(ledger.connection.redis.ttl(name)) for name in names)


def test_a_claim_keeps_its_job_for_the_job_s_time_and_the_retention(
    ledger: Ledger, job_id: JobId
) -> None:
    long_claim(ledger, job_id)

    assert shortest_s(ledger, keys_of(job_id)) > JOB_S + KEEP_S / 2


def test_pages_that_were_fetched_stay_for_who_is_at_work_longest(
    ledger: Ledger, job_id: JobId
) -> None:
    page = Document(
        path="https://example.org/a", digest=digest_of("text"), media_type="text/html", chars=4
    )
    ledger.blobs.put_fetched(job_id, page, "text", work_s=1)
    long_claim(ledger, job_id)
    ledger.blobs.put_fetched(job_id, page, "text", work_s=1)

    assert shortest_s(ledger, [keys.fetched(job_id)]) > JOB_S + KEEP_S / 2


@pytest.mark.parametrize(
    "sign",
    [Claim.renew, lambda claimed: claimed.reserve(WorstCase(1, 1, 1))],
    ids=["renewal", "turn"],
)
def test_every_sign_of_life_keeps_the_job(
    ledger: Ledger, job_id: JobId, sign: Callable[[Claim], None]
) -> None:
    claimed = long_claim(ledger, job_id)
    for name in keys_of(job_id):  # as if most of the time were over
        ledger.connection.redis.expire(name, KEEP_S)

    sign(claimed)

    assert shortest_s(ledger, keys_of(job_id)) > JOB_S + KEEP_S / 2


def test_a_decision_does_not_shorten_the_life_of_a_job_at_work(
    ledger: Ledger, job_id: JobId
) -> None:
    long_claim(ledger, job_id)
    issue(ledger, job_id, "read.1", group="g2")

    assert shortest_s(ledger, keys_of(job_id)) > JOB_S + KEEP_S / 2


def test_checkpoints_stay_as_long_as_their_job(ledger: Ledger, job_id: JobId) -> None:
    long_claim(ledger, job_id).checkpoint(replied())

    assert shortest_s(ledger, [keys.turns(job_id, ONE)]) > JOB_S + KEEP_S / 2


@pytest.mark.parametrize("keep_turns", [False, True])
def test_turns_go_when_their_handoff_ends_unless_they_are_asked_for(
    redis_url: str, *, keep_turns: bool
) -> None:
    ledger = open_ledger(
        redis_url, Settings(lease_s=3_600, retention_s=KEEP_S, keep_turns=keep_turns)
    )
    job_id = a_job(ledger)
    issue(ledger, job_id, ONE)
    claimed = granted(ledger, job_id, ONE)
    claimed.checkpoint(replied())
    finish(claimed)

    assert ledger.claims.turns(job_id, [ONE]) == ({ONE: (replied(),)} if keep_turns else {})
    assert (ledger.connection.redis.ttl(keys.turns(job_id, ONE)) > 0) == keep_turns
    ledger.connection.close()


def test_what_stays_for_longer_is_not_cut_short(ledger: Ledger, job_id: JobId) -> None:
    ledger.connection.redis.expire(keys.job(job_id), 9 * JOB_S)

    long_claim(ledger, job_id)

    assert shortest_s(ledger, [keys.job(job_id)]) > 8 * JOB_S


@pytest.fixture
def week_ledger(redis_url: str) -> Iterator[Ledger]:
    """A ledger that keeps ended jobs for a week."""
    opened = open_ledger(redis_url, Settings(lease_s=3_600, retention_s=WEEK_S))
    yield opened
    opened.connection.close()


def decide(ledger: Ledger, job_id: JobId, event: Event) -> None:
    """Append a decision of the supervisor."""
    expected = version_of(ledger, job_id)
    ledger.journal.commit(Commit(job_id=job_id, expected=expected, events=[event]))


def wait_for_approval(ledger: Ledger, job_id: JobId) -> None:
    """Have the job wait for a person, and then go on."""
    decide(
        ledger, job_id, ApprovalAsked(what=ApprovalOf.PLAN, why="it was asked for", wait_s=MONTH_S)
    )
    issue(ledger, job_id, ONE)


def longest_s(ledger: Ledger, names: list[str]) -> int:
    return max(int(ledger.connection.redis.ttl(name)) for name in names)


def test_a_job_that_waits_for_a_person_stays_for_the_wait_and_the_retention(
    week_ledger: Ledger,
) -> None:
    job_id = a_job(week_ledger)

    wait_for_approval(week_ledger, job_id)

    assert shortest_s(week_ledger, keys_of(job_id)) > MONTH_S + WEEK_S / 2


def test_a_job_that_has_ended_stays_for_the_retention_and_not_for_the_longest_wait(
    week_ledger: Ledger,
) -> None:
    job_id = a_job(week_ledger)
    wait_for_approval(week_ledger, job_id)

    decide(week_ledger, job_id, JobEnded(status=JobStatus.OK))

    assert shortest_s(week_ledger, keys_of(job_id)) > 0
    assert longest_s(week_ledger, keys_of(job_id)) <= WEEK_S


def test_an_ended_job_with_thousands_of_events_leaves_no_handoff_for_longer(
    week_ledger: Ledger,
) -> None:
    job_id = a_job(week_ledger)
    wait_for_approval(week_ledger, job_id)
    names = [f"many{n}.1" for n in range(2_500)]
    issue(week_ledger, job_id, *names)

    decide(week_ledger, job_id, JobEnded(status=JobStatus.OK))

    handoffs = [keys.handoff(job_id, HandoffId(name)) for name in names]
    assert longest_s(week_ledger, handoffs) <= WEEK_S


def test_a_child_job_that_has_ended_stays_as_long_as_its_parent_is_at_work(
    week_ledger: Ledger,
) -> None:
    job_id = a_job(week_ledger)
    issue_to_a_child(week_ledger, job_id, "team.1")
    child = a_job(week_ledger, "default", (job_id, HandoffId("team.1")))
    wait_for_approval(week_ledger, job_id)

    decide(week_ledger, child, JobEnded(status=JobStatus.OK))
    assert int(week_ledger.connection.redis.ttl(keys.job(child))) > MONTH_S

    decide(week_ledger, job_id, JobEnded(status=JobStatus.OK))
    assert 0 < int(week_ledger.connection.redis.ttl(keys.job(child))) <= WEEK_S


def test_a_job_with_a_short_retention_stays_until_its_webhook_has_been_tried(
    ledger: Ledger, job_id: JobId
) -> None:
    asked = ApprovalAsked(what=ApprovalOf.PLAN, why="asked for", wait_s=MONTH_S)
    decide(ledger, job_id, asked)

    decide(ledger, job_id, JobEnded(status=JobStatus.OK))

    assert KEEP_S < int(ledger.connection.redis.ttl(keys.job(job_id))) <= TWO_HOURS_S


def test_a_handoff_that_its_job_has_left_behind_is_unknown(ledger: Ledger, job_id: JobId) -> None:
    ledger.connection.redis.delete(keys.job(job_id))
    before = everything(ledger)

    assert claim(ledger, job_id, "find.1").verdict is ClaimVerdict.UNKNOWN
    assert everything(ledger) == before


@pytest.mark.parametrize(
    "word",
    [
        Claim.renew,
        lambda claimed: claimed.checkpoint(replied()),
        lambda claimed: claimed.reserve(WorstCase(1, 1, 1)),
    ],
    ids=["renewal", "checkpoint", "reservation"],
)
def test_whoever_works_for_a_job_that_is_gone_hears_that_and_writes_nothing(
    ledger: Ledger, job_id: JobId, word: Callable[[Claim], None]
) -> None:
    claimed = granted(ledger, job_id, "find.1")
    ledger.connection.redis.delete(keys.job(job_id))
    before = everything(ledger)

    with pytest.raises(Cancelled):
        word(claimed)
    claimed.release()
    assert everything(ledger) == before
