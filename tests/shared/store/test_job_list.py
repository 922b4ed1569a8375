"""The list of jobs: in the order of submission, filtered by Redis, and read a page at a time."""

from __future__ import annotations

from itertools import pairwise

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.jobs import LOOK_AT, JobFilter
from handoff_queue.shared.store.journal import Commit
from handoff_queue.shared.store.store import Ledger
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.ids import JobId, new_job_id
from tests.doubles.jobs import a_job, submission


def submitted_together(ledger: Ledger, count: int) -> list[JobId]:
    """Submit jobs in one round trip, so that several of them share a millisecond."""
    job_ids = [new_job_id() for _ in range(count)]
    due_at = ledger.connection.now() + 3_600
    problems = ledger.journal.commit_each(
        [
            Commit(
                job_id, 0, [submission()], fields={"status": "queued"}, due_at=due_at, creates=True
            )
            for job_id in job_ids
        ]
    )
    assert set(problems) == {None}
    return job_ids


def with_status(ledger: Ledger, status: JobStatus, tenant: str = "default") -> JobId:
    job_id = a_job(ledger, tenant)
    ledger.connection.redis.hset(keys.job(job_id), "status", status.value)
    return job_id


def test_jobs_of_one_millisecond_are_listed_in_the_order_of_their_submission(
    ledger: Ledger,
) -> None:
    job_ids = submitted_together(ledger, 200)

    scores = [ledger.connection.redis.zscore(keys.JOBS, job_id) for job_id in job_ids]
    assert len({int(score) for score in scores}) < 200, "some jobs share a millisecond"
    assert all(earlier < later for earlier, later in pairwise(scores))
    assert ledger.jobs.newest(200) == job_ids[::-1]


def test_the_place_in_the_list_does_not_change_the_time_of_submission(ledger: Ledger) -> None:
    job_ids = submitted_together(ledger, 50)

    events = [ledger.journal.read(job_id)[0] for job_id in job_ids]
    standings = ledger.jobs.standings(job_ids)
    assert [one.submitted_at for one in standings] == [recorded.at for recorded in events]


def test_the_list_is_filtered_by_status_and_by_tenant(ledger: Ledger) -> None:
    running = with_status(ledger, JobStatus.RUNNING)
    failed = with_status(ledger, JobStatus.FAILED, "ann")
    queued = with_status(ledger, JobStatus.QUEUED, "ann")

    is_open = frozenset({JobStatus.RUNNING, JobStatus.QUEUED})
    assert ledger.jobs.newest(9, JobFilter(statuses=is_open)) == [queued, running]
    assert ledger.jobs.newest(9, JobFilter(tenant="ann")) == [queued, failed]
    assert ledger.jobs.newest(9, JobFilter(is_open, "ann")) == [queued]
    assert ledger.jobs.newest(9, JobFilter(tenant="an")) == []


def test_the_list_is_filtered_by_what_waits_for_a_person(ledger: Ledger) -> None:
    asks, approval, answered, ended, running = (
        with_status(ledger, JobStatus.RUNNING) for _ in range(5)
    )
    fields: dict[JobId, dict[str, str]] = {
        asks: {"asks": "it has spent 3 turns"},
        approval: {"asked_last": "7", "approval:7": "plan", "asked_at": "12000"},
        answered: {"asked_last": "9", "asked_at": "12000"},
        ended: {"asked_last": "7", "approval:7": "plan", "status": "cancelled"},
    }
    for job_id, values in fields.items():
        ledger.connection.redis.hset(keys.job(job_id), mapping=values)

    waiting = JobFilter(frozenset({JobStatus.WAITING}))
    assert ledger.jobs.newest(9, waiting) == [approval, asks]
    assert ledger.jobs.newest(9, JobFilter(frozenset({JobStatus.RUNNING}))) == [running, answered]
    assert [one.asked_at for one in ledger.jobs.standings([approval, answered, ended])] == [
        12.0,
        None,
        None,
    ]


def test_the_filter_and_the_standing_agree_on_what_waits(ledger: Ledger) -> None:
    for status in ("queued", "running", "ok"):
        for asks in ("", "it has spent 3 turns"):
            for question in ({}, {"asked_last": "7"}, {"asked_last": "7", "approval:7": "plan"}):
                fields = {"status": status, "asks": asks, **question}
                ledger.connection.redis.hset(keys.job(a_job(ledger)), mapping=fields)

    job_ids = ledger.jobs.newest(99)
    assert len(job_ids) == 18
    for status in JobStatus:
        standings = ledger.jobs.standings(job_ids)
        expected = [one.job_id for one in standings if one.status is status]
        assert ledger.jobs.newest(99, JobFilter(frozenset({status}))) == expected


def test_the_list_is_filtered_by_age(ledger: Ledger) -> None:
    job_ids = [a_job(ledger) for _ in range(3)]
    for place, job_id in enumerate(job_ids):
        ledger.connection.redis.zadd(keys.JOBS, {job_id: 1_000 + place})

    assert ledger.jobs.newest(9, JobFilter(submitted_before=1.002)) == [job_ids[1], job_ids[0]]
    assert ledger.jobs.newest(9, JobFilter(submitted_before=1.0)) == []


def test_a_rare_job_is_found_pages_back_and_no_job_is_listed_twice(ledger: Ledger) -> None:
    old = [with_status(ledger, JobStatus.FAILED) for _ in range(2)]
    job_ids = submitted_together(ledger, 2 * LOOK_AT)

    failed = JobFilter(statuses=frozenset({JobStatus.FAILED}))
    assert ledger.jobs.newest(1, failed) == [old[1]]
    assert list(ledger.jobs.matching(failed)) == old[::-1]
    assert ledger.jobs.newest(len(job_ids), JobFilter(tenant="default")) == job_ids[::-1]
    assert ledger.jobs.newest(len(job_ids) + 2) == [*job_ids[::-1], *old[::-1]]


def test_a_job_that_retention_has_removed_takes_no_place_in_the_list(ledger: Ledger) -> None:
    kept, gone = a_job(ledger), a_job(ledger)
    ledger.connection.redis.delete(keys.job(gone))

    assert ledger.jobs.newest(1) == [kept]


def test_a_job_is_looked_up_by_the_beginning_of_its_id(ledger: Ledger) -> None:
    first, second = a_job(ledger), a_job(ledger)
    ledger.connection.redis.hset(keys.job(first), "children", "j-c0ffee000000 j-decade000000")
    child = keys.job(JobId("j-decade000000"))
    ledger.connection.redis.hset(child, "version", 1)
    ledger.connection.redis.expire(child, 3_600)

    assert ledger.jobs.beginning_with(first, 9) == [first]
    assert ledger.jobs.beginning_with(second[:-1], 9) == [second]
    assert ledger.jobs.beginning_with("j-decade", 9) == ["j-decade000000"]
    assert ledger.jobs.beginning_with("j-c0ffee", 9) == [], "this child job never began"


def test_a_prefix_is_looked_up_in_all_pages_of_the_list(ledger: Ledger) -> None:
    old = a_job(ledger)
    submitted_together(ledger, 2 * LOOK_AT)

    assert ledger.jobs.beginning_with(old, 9) == [old]
    assert len(ledger.jobs.beginning_with("j-", 6)) == 6
