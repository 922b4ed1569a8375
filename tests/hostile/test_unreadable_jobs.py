"""A program that reaches Redis writes over the record of a job. Lists show the other jobs, and the
job can be deleted.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.job_filter import JobFilter
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.events import JobEnded, JobStatus
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.supervisor.client.client import Client
from tests.doubles.jobs import a_job, handoff_key, issue
from tests.refusals import refusal_of


def set_text(store: Store, job_id: JobId) -> None:
    store.connection.redis.set(keys.job(job_id), "no hash", ex=600)


def set_status(store: Store, job_id: JobId) -> None:
    store.connection.redis.hset(keys.job(job_id), "status", "no status")


def set_journal(store: Store, job_id: JobId) -> None:
    store.connection.redis.set(keys.log(job_id), "no list", ex=600)


def set_title(store: Store, job_id: JobId) -> None:
    store.connection.redis.set(keys.title(job_id), b"\xff\xfe", ex=600)


FAULTS: dict[str, Callable[[Store, JobId], None]] = {
    "a key of another type": set_text,
    "an unknown status": set_status,
    "a journal of another type": set_journal,
    "a title that is not UTF-8": set_title,
}


@pytest.fixture(params=FAULTS)
def damaged(request: pytest.FixtureRequest, store: Store) -> JobId:
    """Return a job whose record another program has written over."""
    job_id = a_job(store)
    FAULTS[request.param](store, job_id)
    return job_id


@pytest.fixture
def jobs(store: Store) -> Client:
    return Client(store, Settings(offline=True))


def test_the_list_shows_the_other_jobs_and_names_the_damaged_job(
    jobs: Client, damaged: JobId
) -> None:
    other = a_job(jobs.store)

    listed = {job.job_id: job for job in jobs.newest()}

    assert listed[other].status is JobStatus.RUNNING
    assert listed[damaged].status is JobStatus.UNREADABLE
    assert listed[damaged].title == "its record in Redis cannot be read"


def test_the_counts_and_each_filter_can_be_read(jobs: Client, damaged: JobId) -> None:
    other = a_job(jobs.store)
    filters = (JobFilter(min_microusd=0), JobFilter(text=other), JobFilter(tenant="default"))

    counts = jobs.store.jobs.count_by_status()

    assert sum(counts.values()) == 2
    assert all(other in jobs.store.jobs.list_newest(10, where) for where in filters)


def test_the_damaged_job_can_be_found_and_deleted(jobs: Client, damaged: JobId) -> None:
    assert jobs.store.jobs.find_by_prefix(damaged[:8], 5) == [damaged]

    jobs.delete(damaged)

    assert jobs.newest() == []
    assert jobs.store.connection.redis.exists(keys.job(damaged), keys.log(damaged)) == 0
    assert "there is no job" in (refusal_of(jobs.delete, damaged) or "")


def test_a_job_with_an_entry_that_is_not_an_event_is_deleted_with_its_handoffs(
    jobs: Client,
) -> None:
    store = jobs.store
    job_id = a_job(store)
    issue(store, job_id, "a.1")
    store.journal.append(job_id, JobEnded(status=JobStatus.FAILED), {"status": "failed"})
    store.connection.redis.rpush(keys.log(job_id), "no event")

    names = (keys.job(job_id), keys.log(job_id), handoff_key(store, job_id, HandoffId("a.1")))

    jobs.delete(job_id)

    assert store.connection.redis.exists(*names) == 0


def test_a_journal_of_another_type_breaks_no_list_and_is_deleted(jobs: Client) -> None:
    store = jobs.store
    job_id = a_job(store)
    store.connection.redis.hset(keys.job(job_id), "status", "failed")
    store.connection.redis.set(keys.log(job_id), "no list", ex=600)

    reasons = store.journal.read_end_reasons([job_id])
    jobs.delete(job_id)

    assert reasons == {}
    assert store.connection.redis.exists(keys.log(job_id)) == 0
