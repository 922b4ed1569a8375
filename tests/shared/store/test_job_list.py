"""Jobs are listed in the order of their submission, filtered by Redis and read in pages."""

from __future__ import annotations

from itertools import pairwise

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.job_filter import JobFilter
from handoff_queue.shared.store.jobs import JOBS_A_ROUND_TRIP
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.handoff import ResultStatus
from handoff_queue.shared.types.ids import JobId, create_job_id
from tests.doubles.jobs import (
    a_job,
    finish,
    finish_with,
    granted_claim,
    issue,
    result_of,
    submission,
)


def submit_together(store: Store, count: int) -> list[JobId]:
    """Submit jobs in one round trip, so that several jobs have the same millisecond."""
    job_ids = [create_job_id() for _ in range(count)]
    due_at = store.connection.now() + 3_600
    problems = store.journal.commit_each(
        [
            Commit(
                job_id, 0, [submission()], fields={"status": "queued"}, due_at=due_at, creates=True
            )
            for job_id in job_ids
        ]
    )
    assert set(problems) == {None}
    return job_ids


def with_status(store: Store, status: JobStatus, tenant: str = "default") -> JobId:
    job_id = a_job(store, tenant)
    store.connection.redis.hset(keys.job(job_id), "status", status.value)
    return job_id


def test_jobs_of_one_millisecond_are_listed_in_the_order_of_their_submission(
    store: Store,
) -> None:
    job_ids = submit_together(store, 200)

    scores = [store.connection.redis.zscore(keys.JOBS, job_id) for job_id in job_ids]
    assert len({int(score) for score in scores}) < 200, "some jobs share a millisecond"
    assert all(earlier < later for earlier, later in pairwise(scores))
    assert store.jobs.list_newest(200) == job_ids[::-1]


def test_the_place_in_the_list_does_not_change_the_time_of_submission(store: Store) -> None:
    job_ids = submit_together(store, 50)

    events = [store.journal.read(job_id)[0] for job_id in job_ids]
    job_infos = store.jobs.read(job_ids)
    assert [info.submitted_at for info in job_infos] == [recorded.at for recorded in events]


def test_the_list_is_filtered_by_status_and_by_tenant(store: Store) -> None:
    running = with_status(store, JobStatus.RUNNING)
    failed = with_status(store, JobStatus.FAILED, "ann")
    queued = with_status(store, JobStatus.QUEUED, "ann")

    is_open = frozenset({JobStatus.RUNNING, JobStatus.QUEUED})
    assert store.jobs.list_newest(9, JobFilter(statuses=is_open)) == [queued, running]
    assert store.jobs.list_newest(9, JobFilter(tenant="ann")) == [queued, failed]
    assert store.jobs.list_newest(9, JobFilter(is_open, "ann")) == [queued]
    assert store.jobs.list_newest(9, JobFilter(tenant="an")) == []


@pytest.mark.parametrize("field", ["tenant", "mode", "priority", "specialist"])
def test_an_empty_name_in_the_filter_matches_no_job(store: Store, field: str) -> None:
    with_status(store, JobStatus.QUEUED)

    where = JobFilter(**{field: ""})  # type: ignore[arg-type]

    assert store.jobs.list_newest(9, where) == []
    assert store.jobs.count_by_status(where) == {}


def test_the_list_filters_jobs_that_wait_for_a_person(store: Store) -> None:
    asks, approval, answered, ended, running = (
        with_status(store, JobStatus.RUNNING) for _ in range(5)
    )
    fields: dict[JobId, dict[str, str]] = {
        approval: {"asked_last": "7", "approval:7": "plan", "asked_at": "12000"},
        answered: {"asked_last": "9", "asked_at": "12000"},
        ended: {"asked_last": "7", "approval:7": "plan"},
    }
    for job_id, values in fields.items():
        store.connection.redis.hset(keys.progress(job_id), mapping=values)

    store.connection.redis.hset(keys.job(asks), "asks", "it has spent 3 turns")
    store.connection.redis.hset(keys.job(ended), "status", "cancelled")

    waiting = JobFilter(frozenset({JobStatus.WAITING}))
    assert store.jobs.list_newest(9, waiting) == [approval, asks]
    assert store.jobs.list_newest(9, JobFilter(frozenset({JobStatus.RUNNING}))) == [
        running,
        answered,
    ]
    assert [info.asked_at for info in store.jobs.read([approval, answered, ended])] == [
        12.0,
        None,
        None,
    ]


def test_the_filter_and_the_summary_agree_on_waiting_jobs(store: Store) -> None:
    for status in ("queued", "running", "ok"):
        for asks in ("", "it has spent 3 turns"):
            for question in ({}, {"asked_last": "7"}, {"asked_last": "7", "approval:7": "plan"}):
                job_id = a_job(store)
                fields = {"status": status, "asks": asks}
                store.connection.redis.hset(keys.job(job_id), mapping=fields)
                if question:
                    store.connection.redis.hset(keys.progress(job_id), mapping=question)

    job_ids = store.jobs.list_newest(99)
    assert len(job_ids) == 18
    for status in JobStatus:
        job_infos = store.jobs.read(job_ids)
        expected = [info.job_id for info in job_infos if info.status is status]
        assert store.jobs.list_newest(99, JobFilter(frozenset({status}))) == expected


def test_the_list_is_filtered_by_age(store: Store) -> None:
    job_ids = [a_job(store) for _ in range(3)]
    for place, job_id in enumerate(job_ids):
        store.connection.redis.zadd(keys.JOBS, {job_id: 1_000 + place})

    assert store.jobs.list_newest(9, JobFilter(submitted_before=1.002)) == [job_ids[1], job_ids[0]]
    assert store.jobs.list_newest(9, JobFilter(submitted_before=1.0)) == []


@pytest.mark.slow
def test_a_rare_job_is_found_pages_back_and_no_job_is_listed_twice(store: Store) -> None:
    old = [with_status(store, JobStatus.FAILED) for _ in range(2)]
    job_ids = submit_together(store, 2 * JOBS_A_ROUND_TRIP)

    failed = JobFilter(statuses=frozenset({JobStatus.FAILED}))
    assert store.jobs.list_newest(1, failed) == [old[1]]
    assert list(store.jobs.iterate_matching(failed)) == old[::-1]
    assert store.jobs.list_newest(len(job_ids), JobFilter(tenant="default")) == job_ids[::-1]
    assert store.jobs.list_newest(len(job_ids) + 2) == [*job_ids[::-1], *old[::-1]]


def test_a_job_that_retention_has_removed_takes_no_place_in_the_list(store: Store) -> None:
    kept, deleted_job = a_job(store), a_job(store)
    store.connection.redis.delete(keys.job(deleted_job))

    assert store.jobs.list_newest(1) == [kept]


def test_a_job_is_looked_up_by_the_beginning_of_its_id(store: Store) -> None:
    first, second = a_job(store), a_job(store)
    store.connection.redis.hset(keys.job(first), "children", "j-c0ffee000000 j-decade000000")
    child = keys.job(JobId("j-decade000000"))
    store.connection.redis.hset(child, "status", "running")
    store.connection.redis.expire(child, 3_600)

    assert store.jobs.find_by_prefix(first, 9) == [first]
    assert store.jobs.find_by_prefix(second[:-1], 9) == [second]
    assert store.jobs.find_by_prefix("j-decade", 9) == ["j-decade000000"]
    assert store.jobs.find_by_prefix("j-c0ffee", 9) == [], "this child job never began"


def test_a_prefix_is_looked_up_in_all_pages_of_the_list(store: Store) -> None:
    old = a_job(store)
    submit_together(store, 2 * JOBS_A_ROUND_TRIP)

    assert store.jobs.find_by_prefix(old, 9) == [old]
    assert len(store.jobs.find_by_prefix("j-", 6)) == 6


def test_the_list_is_filtered_by_mode_priority_text_cost_and_age(store: Store) -> None:
    first, second = submit_together(store, 2)
    redis = store.connection.redis
    redis.hset(keys.job(first), mapping={"mode": "team", "priority": "batch"})
    redis.hset(keys.progress(first), "usd", 500)
    redis.hset(keys.job(second), "mode", "single")
    redis.set(keys.title(second), "100% of (A-Z) [x]", ex=600)
    middle = (redis.zscore(keys.JOBS, first) + redis.zscore(keys.JOBS, second)) / 2_000
    redis.zadd(keys.JOBS, {second: redis.zscore(keys.JOBS, second) + 5_000})

    assert store.jobs.list_newest(9, JobFilter(mode="team")) == [first]
    assert store.jobs.list_newest(9, JobFilter(priority="batch")) == [first]
    assert store.jobs.list_newest(9, JobFilter(text="% OF (a-z) [")) == [second]
    assert store.jobs.list_newest(9, JobFilter(text=second[:8].upper())) == [second]
    assert store.jobs.list_newest(9, JobFilter(text=".*")) == []
    assert store.jobs.list_newest(9, JobFilter(min_microusd=500)) == [first]
    assert store.jobs.list_newest(9, JobFilter(min_microusd=501)) == []
    assert store.jobs.list_newest(9, JobFilter(submitted_after=middle + 1)) == [second]
    assert store.jobs.read_labels([first])[first].mode == "team"


def test_the_list_is_filtered_by_a_whole_name_of_an_assigned_specialist(store: Store) -> None:
    both, reviewed = a_job(store), a_job(store)
    issue(store, both, "a.1", role="writer")
    issue(store, both, "b.1", role="reviewer")
    issue(store, reviewed, "a.1", role="reviewer")

    def listed(name: str) -> list[str]:
        return list(store.jobs.list_newest(9, JobFilter(specialist=name)))

    assert listed("writer") == [both]
    assert listed("reviewer") == [reviewed, both]
    assert listed("write") == []
    assert store.jobs.count_by_status(JobFilter(specialist="writer")) == {JobStatus.RUNNING: 1}


def test_the_list_is_filtered_by_a_specialist_that_failed(store: Store) -> None:
    failed, ended = a_job(store), a_job(store)
    issue(store, failed, "a.1", "b.1", role="writer")
    issue(store, failed, "c.1", role="reviewer")
    issue(store, ended, "a.1", role="writer")
    for handoff_id in ("a.1", "b.1", "c.1"):
        claimed = granted_claim(store, failed, handoff_id)
        finish_with(claimed, result_of(claimed).model_copy(update={"status": ResultStatus.FAILED}))
    finish(granted_claim(store, ended, "a.1"))

    def listed(name: str) -> list[str]:
        return list(store.jobs.list_newest(9, JobFilter(failed_specialist=name)))

    assert listed("writer") == [failed]
    assert listed("reviewer") == [failed]
    assert listed("write") == []
    assert store.jobs.count_by_status(JobFilter(failed_specialist="writer")) == {
        JobStatus.RUNNING: 1
    }


def test_the_counts_are_of_all_jobs_that_match(store: Store) -> None:
    submit_together(store, 2 * JOBS_A_ROUND_TRIP + 1)
    with_status(store, JobStatus.FAILED, "ann")

    assert store.jobs.count_by_status() == {
        JobStatus.QUEUED: 2 * JOBS_A_ROUND_TRIP + 1,
        JobStatus.FAILED: 1,
    }
    assert store.jobs.count_by_status(JobFilter(tenant="ann")) == {JobStatus.FAILED: 1}
    assert store.jobs.count_by_status(JobFilter(frozenset({JobStatus.OK}))) == {}
