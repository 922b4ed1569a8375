"""Many jobs are submitted in order and in few round trips, with the effect of single
submissions.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from random import Random

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.daily_budgets import DailyCaps
from handoff_queue.shared.types.errors import (
    BudgetSpent,
    StoreRefusesWrites,
    StoreUnavailable,
    UserError,
)
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.names import SUBMISSIONS_QUEUE
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.client.submission import JOBS_A_BATCH
from tests.doubles.jobs import granted_claim, issue, model_reply

INVALID = Request(" ")
MANY = [Request(f"Compare {number}.") for number in range(2 * JOBS_A_BATCH + 1)]


def announced_count(jobs: Client) -> int:
    return int(jobs.store.connection.redis.llen(SUBMISSIONS_QUEUE))


def command_calls(jobs: Client, command: str) -> int:
    return int(
        jobs.store.connection.redis.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})[
            "calls"
        ]
    )


def client_without_memory_mark(jobs: Client) -> Client:
    """Return a client that submits until Redis has no memory left."""
    return client.connect(jobs.store.connection.url, Settings(offline=True, memory_mark=1.0))


def spend_daily_budget(jobs: Client, tenant: str) -> JobId:
    job_id = jobs.submit(Request("Compare.", tenant=tenant))
    jobs.store.daily_budgets.set_caps(DailyCaps(tenant_day_tokens=100))
    issue(jobs.store, job_id, "a.1")
    granted_claim(jobs.store, job_id, "a.1").checkpoint(model_reply(80, 20, 1))
    return job_id


@pytest.mark.slow
def test_each_job_is_stored_and_announced(jobs: Client) -> None:
    job_ids = list(jobs.submit_each(MANY))

    assert [info.title for info in jobs.store.jobs.read(job_ids)] == [
        request.text for request in MANY
    ]
    assert {jobs.info(submitted).status for submitted in (job_ids[0], job_ids[-1])} == {
        JobStatus.QUEUED
    }
    assert announced_count(jobs) == len(MANY)


@pytest.mark.slow
def test_the_checks_of_a_slice_run_once(jobs: Client) -> None:
    before = command_calls(jobs, "info")

    list(jobs.submit_each(MANY))

    assert command_calls(jobs, "info") - before == 3 + 1, "three slices, and the question here"


def test_nothing_happens_before_the_first_id_is_read_and_then_only_its_slice(
    jobs: Client,
) -> None:
    some = jobs.submit_each(MANY)
    assert announced_count(jobs) == 0

    assert len(list(islice(some, 2))) == 2

    assert announced_count(jobs) == JOBS_A_BATCH


def test_only_jobs_before_an_invalid_job_are_enqueued(
    jobs: Client,
) -> None:
    job_ids = list[JobId]()

    with pytest.raises(UserError, match="the request is empty"):
        job_ids.extend(jobs.submit_each([*MANY[:2], INVALID, *MANY[2:4]]))

    assert {job.job_id for job in jobs.newest()} == set(job_ids)
    assert (len(job_ids), announced_count(jobs)) == (2, 2)


def test_if_a_tenants_day_is_spent_earlier_jobs_of_others_are_enqueued(jobs: Client) -> None:
    spend_daily_budget(jobs, "bob")
    job_ids = list[JobId]()

    with pytest.raises(BudgetSpent, match="the budget of tenant bob for today is spent"):
        job_ids.extend(
            jobs.submit_each(
                [
                    Request("One.", tenant="ann"),
                    Request("Two.", tenant="bob"),
                    Request("Three.", tenant="ann"),
                ]
            )
        )

    assert [jobs.info(submitted).title for submitted in job_ids] == ["One."]


def test_the_same_key_and_request_is_the_same_job_announced_once(jobs: Client) -> None:
    keyed = Request("Compare.", idempotency_key="k1")
    known = jobs.submit(keyed)

    assert list(jobs.submit_each([MANY[0], keyed, keyed]))[1:] == [known, known]
    assert announced_count(jobs) == 2


def test_a_key_of_another_request_is_refused_in_its_turn(jobs: Client) -> None:
    known = jobs.submit(Request("Compare.", idempotency_key="k1"))
    job_ids = list[JobId]()

    with pytest.raises(UserError, match="the idempotency key was used for another request"):
        job_ids.extend(
            jobs.submit_each(
                [MANY[0], Request("Something else.", idempotency_key="k1"), *MANY[1:3]]
            )
        )

    assert {job.job_id for job in jobs.newest()} == {known, *job_ids}
    assert (len(job_ids), announced_count(jobs)) == (1, 2)


def test_a_key_of_an_earlier_job_in_the_same_call_is_refused(jobs: Client) -> None:
    job_ids = list[JobId]()

    with pytest.raises(UserError, match="the idempotency key was used for another request"):
        job_ids.extend(
            jobs.submit_each(
                [Request(text, idempotency_key="k1") for text in ("One.", "One.", "Two.")]
                + MANY[:2]
            )
        )

    assert len(job_ids) == 2
    assert [job.job_id for job in jobs.newest()] == job_ids[:1]


def test_jobs_whose_reply_was_lost_exist_once_and_are_announced(jobs: Client, armed: Path) -> None:
    (armed / "script.commit.after").write_text("drop")

    job_ids = list(jobs.submit_each(MANY[:3]))

    assert sorted(job.job_id for job in jobs.newest()) == sorted(job_ids)
    assert not (armed / "script.commit.after").exists()
    assert announced_count(jobs) == 3


def test_a_full_redis_ends_the_submission(jobs: Client) -> None:
    """A small job might still fit after a large job was refused. The submission ends
    nevertheless.
    """
    redis, job_ids = jobs.store.connection.redis, list[JobId]()
    texts = [Random(number).randbytes(20_000 if number % 2 else 20).hex() for number in range(120)]
    many = [Request(text, idempotency_key=str(number)) for number, text in enumerate(texts)]
    list(jobs.submit_each([Request("The scripts are there now.")]))
    redis.config_set("maxmemory", redis.info("memory")["used_memory"] + 400_000)
    try:
        with pytest.raises(StoreUnavailable):
            job_ids.extend(client_without_memory_mark(jobs).submit_each(many))
    finally:
        redis.config_set("maxmemory", 0)

    assert {job.job_id for job in jobs.newest(100)[:-1]} == set(job_ids)


def test_a_job_that_redis_refuses_to_write_is_not_enqueued(jobs: Client) -> None:
    redis = jobs.store.connection.redis
    redis.execute_command("REPLICAOF", "127.0.0.1", "1")
    try:
        with pytest.raises(StoreRefusesWrites, match=r"^Redis is read-only: the Redis URL points"):
            list(jobs.submit_each(MANY[:3]))
    finally:
        redis.execute_command("REPLICAOF", "NO", "ONE")

    assert jobs.newest() == []
