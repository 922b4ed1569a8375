"""A tenant has at most as many open jobs as its limit allows, whoever ends the jobs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.commit import Commit
from handoff_queue.shared.store.daily_budgets import DailyCaps
from handoff_queue.shared.types.errors import TooManyOpenJobs
from handoff_queue.shared.types.events import CancelRequested, JobEnded, JobStatus
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from tests.doubles.jobs import a_job, issue_to_a_child, version_of

HANDOFF_PROJECT = Request("Compare things.", tenant="acme")
MAX_JOBS = 2


@pytest.fixture(autouse=True)
def limit(jobs: Client) -> None:
    jobs.store.daily_budgets.set_caps(DailyCaps(tenant_open_jobs=MAX_JOBS))


def end(jobs: Client, job_id: JobId, status: JobStatus = JobStatus.OK) -> None:
    jobs.store.journal.commit(
        Commit(
            job_id,
            version_of(jobs.store, job_id),
            [JobEnded(status=status)],
            fields={"status": status.value},
        )
    )


def end_without_the_count(jobs: Client, job_id: JobId) -> None:
    """End a job without a change of the count, as after an error of Redis."""
    jobs.store.journal.append(job_id, JobEnded(status=JobStatus.OK), {"status": "ok"})


def fill(jobs: Client, request: Request = HANDOFF_PROJECT) -> list[JobId]:
    return [jobs.submit(request) for _ in range(MAX_JOBS)]


def open_jobs(jobs: Client, tenant: str = "acme") -> int:
    return jobs.store.daily_budgets.read_today(tenant).open_jobs


def test_a_job_above_the_limit_is_refused_in_one_line_and_nothing_of_it_is_stored(
    jobs: Client,
) -> None:
    fill(jobs)

    with pytest.raises(TooManyOpenJobs) as refused:
        jobs.submit(replace(HANDOFF_PROJECT, documents={"a.md": b"A text."}))

    assert str(refused.value) == (
        "tenant acme has reached its limit of open jobs (2, HANDOFF_TENANT_OPEN_JOBS): wait until"
        " a job ends, or cancel a job"
    )
    assert len(jobs.newest()) == MAX_JOBS
    assert not jobs.store.connection.redis.keys(keys.document("*"))


def test_the_limit_of_a_tenant_does_not_concern_another_tenant(jobs: Client) -> None:
    fill(jobs)

    jobs.submit(replace(HANDOFF_PROJECT, tenant="globex"))
    jobs.submit(Request("Compare things."))

    assert [open_jobs(jobs, tenant) for tenant in ("acme", "globex", "default")] == [2, 1, 1]


def test_clients_at_the_same_time_do_not_pass_the_limit_together(jobs: Client) -> None:
    def try_to_submit(_: int) -> bool:
        try:
            jobs.submit(HANDOFF_PROJECT)
        except TooManyOpenJobs:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        accepted = list(pool.map(try_to_submit, range(24)))

    assert (sum(accepted), open_jobs(jobs)) == (MAX_JOBS, MAX_JOBS)


def test_a_batch_stores_the_jobs_that_fit(jobs: Client) -> None:
    stored: list[JobId] = []

    with pytest.raises(TooManyOpenJobs):
        stored.extend(jobs.submit_each([HANDOFF_PROJECT] * 5))

    assert (len(jobs.newest()), open_jobs(jobs)) == (MAX_JOBS, MAX_JOBS)


def test_a_repeated_submission_is_not_refused(jobs: Client) -> None:
    keyed = replace(HANDOFF_PROJECT, idempotency_key="k")
    job_id = jobs.submit(keyed)
    jobs.submit(HANDOFF_PROJECT)

    assert jobs.submit(keyed) == job_id


@pytest.mark.parametrize("status", [JobStatus.OK, JobStatus.FAILED, JobStatus.CANCELLED])
def test_the_end_of_a_job_makes_room(status: JobStatus, jobs: Client) -> None:
    first, _ = fill(jobs)

    end(jobs, first, status)

    jobs.submit(HANDOFF_PROJECT)
    assert open_jobs(jobs) == MAX_JOBS


def test_a_job_that_waits_for_a_person_is_open(jobs: Client) -> None:
    first, _ = fill(jobs)
    jobs.store.connection.redis.hset(keys.job(first), "asks", "cost")

    with pytest.raises(TooManyOpenJobs):
        jobs.submit(HANDOFF_PROJECT)


def test_a_retry_above_the_limit_is_refused_and_a_retry_counts_as_open(jobs: Client) -> None:
    first, _ = fill(jobs)
    jobs.store.journal.append(first, CancelRequested())
    end(jobs, first, JobStatus.CANCELLED)
    jobs.submit(HANDOFF_PROJECT)

    with pytest.raises(TooManyOpenJobs):
        jobs.retry(first)
    ended = jobs.info(first).status
    jobs.store.daily_budgets.set_caps(DailyCaps(tenant_open_jobs=MAX_JOBS + 1))
    jobs.retry(first)

    assert (ended, open_jobs(jobs)) == (JobStatus.CANCELLED, MAX_JOBS + 1)
    with pytest.raises(TooManyOpenJobs):
        jobs.submit(HANDOFF_PROJECT)


def test_jobs_that_retention_has_removed_make_room(jobs: Client) -> None:
    first, _ = fill(jobs)
    jobs.store.connection.redis.delete(keys.job(first), keys.log(first))

    jobs.submit(HANDOFF_PROJECT)

    assert open_jobs(jobs) == MAX_JOBS


def test_a_deleted_job_makes_room(jobs: Client) -> None:
    first, _ = fill(jobs)
    end_without_the_count(jobs, first)
    jobs.delete(first)

    jobs.submit(HANDOFF_PROJECT)

    assert open_jobs(jobs) == MAX_JOBS


def test_ended_jobs_that_are_still_counted_make_room(jobs: Client) -> None:
    for job_id in fill(jobs):
        end_without_the_count(jobs, job_id)

    fill(jobs)

    assert open_jobs(jobs) == MAX_JOBS


def test_a_child_job_is_not_counted(jobs: Client) -> None:
    parent = a_job(jobs.store, "acme")
    issue_to_a_child(jobs.store, parent, "team.1")
    a_job(jobs.store, "acme", (parent, jobs.store.journal.read(parent)[-1].event.handoff_id))  # type: ignore[union-attr]

    assert open_jobs(jobs) == 1


def test_a_count_that_another_program_has_overwritten_stops_no_job(jobs: Client) -> None:
    jobs.store.connection.redis.set(keys.open_jobs("acme"), "7", ex=600)

    job_id = jobs.submit(HANDOFF_PROJECT)
    end(jobs, job_id)

    assert jobs.info(job_id).status is JobStatus.OK


def test_the_count_expires_after_the_jobs_that_it_counts(jobs: Client) -> None:
    job_id = jobs.submit(HANDOFF_PROJECT)

    redis = jobs.store.connection.redis
    assert redis.ttl(keys.open_jobs("acme")) > redis.ttl(keys.job(job_id)) + 365 * 86_400


def test_without_a_limit_every_job_is_accepted(jobs: Client) -> None:
    jobs.store.daily_budgets.set_caps(DailyCaps())

    fill(jobs)
    fill(jobs)

    today = jobs.store.daily_budgets.read_today("acme")
    assert (today.open_jobs, today.most_open_jobs) == (2 * MAX_JOBS, 0)
