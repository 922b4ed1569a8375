"""Many jobs through one door: in order, in few round trips, and as if each had been submitted
in its turn.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from random import Random

import pytest

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.daily_budget import DailyCaps
from handoff_queue.shared.store.redis.connection import READ_ONLY
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
from handoff_queue.supervisor.client.client import Client, Request
from handoff_queue.supervisor.client.submit import SLICE
from tests.doubles.jobs import granted, issue, replied

BROKEN = Request(" ")
MANY = [Request(f"Compare {number}.") for number in range(2 * SLICE + 1)]


def announced(jobs: Client) -> int:
    return int(jobs.store.connection.redis.llen(SUBMISSIONS_QUEUE))


def asked(jobs: Client, command: str) -> int:
    return int(
        jobs.store.connection.redis.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})[
            "calls"
        ]
    )


def client_without_a_mark(jobs: Client) -> Client:
    """It fills Redis to the brim."""
    return client.connect(jobs.store.connection.url, Settings(offline=True, memory_mark=1.0))


def spend_the_day_of(jobs: Client, tenant: str) -> JobId:
    job_id = jobs.submit(Request("Compare.", tenant=tenant))
    jobs.store.daily_budgets.set_caps(DailyCaps(tenant_day_tokens=100))
    issue(jobs.store, job_id, "a.1")
    granted(jobs.store, job_id, "a.1").checkpoint(replied(80, 20, 1))
    return job_id


def test_each_job_has_a_place_and_is_announced(jobs: Client) -> None:
    found = list(jobs.submit_each(MANY))

    assert [one.title for one in jobs.store.jobs.standings(found)] == [one.text for one in MANY]
    assert {jobs.standing(one).status for one in (found[0], found[-1])} == {JobStatus.QUEUED}
    assert announced(jobs) == len(MANY)


def test_the_checks_of_a_slice_run_once(jobs: Client) -> None:
    before = asked(jobs, "info")

    list(jobs.submit_each(MANY))

    assert asked(jobs, "info") - before == 3 + 1, "three slices, and the question here"


def test_nothing_happens_before_the_first_id_is_read_and_then_only_its_slice(
    jobs: Client,
) -> None:
    some = jobs.submit_each(MANY)
    assert announced(jobs) == 0

    assert len(list(islice(some, 2))) == 2

    assert announced(jobs) == SLICE


def test_jobs_before_an_invalid_job_are_enqueued_and_later_ones_are_not(
    jobs: Client,
) -> None:
    found = list[JobId]()

    with pytest.raises(UserError, match="the request is empty"):
        found.extend(jobs.submit_each([*MANY[:2], BROKEN, *MANY[2:4]]))

    assert {one.job_id for one in jobs.newest()} == set(found)
    assert (len(found), announced(jobs)) == (2, 2)


def test_if_a_tenants_day_is_spent_earlier_jobs_of_others_are_enqueued(jobs: Client) -> None:
    spend_the_day_of(jobs, "bob")
    found = list[JobId]()

    with pytest.raises(BudgetSpent, match="the budget of tenant bob for today is spent"):
        found.extend(
            jobs.submit_each(
                [
                    Request("One.", tenant="ann"),
                    Request("Two.", tenant="bob"),
                    Request("Three.", tenant="ann"),
                ]
            )
        )

    assert [jobs.standing(one).title for one in found] == ["One."]


def test_the_same_key_and_request_is_the_same_job_announced_once(jobs: Client) -> None:
    keyed = Request("Compare.", idempotency_key="k1")
    known = jobs.submit(keyed)

    assert list(jobs.submit_each([MANY[0], keyed, keyed]))[1:] == [known, known]
    assert announced(jobs) == 2


def test_a_key_of_another_request_is_refused_in_its_turn(jobs: Client) -> None:
    known = jobs.submit(Request("Compare.", idempotency_key="k1"))
    found = list[JobId]()

    with pytest.raises(UserError, match="this idempotency key was used for another request"):
        found.extend(
            jobs.submit_each(
                [MANY[0], Request("Something else.", idempotency_key="k1"), *MANY[1:3]]
            )
        )

    assert {one.job_id for one in jobs.newest()} == {known, *found}
    assert (len(found), announced(jobs)) == (1, 2)


def test_a_key_of_an_earlier_job_in_the_same_call_is_refused(jobs: Client) -> None:
    found = list[JobId]()

    with pytest.raises(UserError, match="this idempotency key was used for another request"):
        found.extend(
            jobs.submit_each(
                [Request(text, idempotency_key="k1") for text in ("One.", "One.", "Two.")]
                + MANY[:2]
            )
        )

    assert len(found) == 2
    assert [one.job_id for one in jobs.newest()] == found[:1]


def test_jobs_whose_reply_was_lost_exist_once_and_are_announced(jobs: Client, armed: Path) -> None:
    (armed / "script.commit.after").write_text("drop")

    found = list(jobs.submit_each(MANY[:3]))

    assert sorted(one.job_id for one in jobs.newest()) == sorted(found)
    assert not (armed / "script.commit.after").exists()
    assert announced(jobs) == 3


def test_a_full_redis_ends_the_submission(jobs: Client) -> None:
    """Jobs that are sent together take room in Redis until they are done. A later job may fit where
    an earlier job did not.
    """
    redis, found = jobs.store.connection.redis, list[JobId]()
    texts = [Random(number).randbytes(20_000 if number % 2 else 20).hex() for number in range(120)]
    many = [Request(text, idempotency_key=str(number)) for number, text in enumerate(texts)]
    list(jobs.submit_each([Request("The scripts are there now.")]))
    redis.config_set("maxmemory", redis.info("memory")["used_memory"] + 400_000)
    try:
        with pytest.raises(StoreUnavailable):
            found.extend(client_without_a_mark(jobs).submit_each(many))
    finally:
        redis.config_set("maxmemory", 0)

    assert {one.job_id for one in jobs.newest(100)[:-1]} == set(found)


def test_a_job_that_redis_refuses_to_write_is_not_enqueued(jobs: Client) -> None:
    redis = jobs.store.connection.redis
    redis.execute_command("REPLICAOF", "127.0.0.1", "1")
    try:
        with pytest.raises(StoreRefusesWrites, match=f"^{READ_ONLY}$"):
            list(jobs.submit_each(MANY[:3]))
    finally:
        redis.execute_command("REPLICAOF", "NO", "ONE")

    assert jobs.newest() == []
