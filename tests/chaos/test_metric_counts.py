"""The check after a chaos run finds a fact that was counted twice, or not at all."""

from __future__ import annotations

import pytest

from handoff_queue.chaos.test_bed import find_wrong_counts
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.ids import JobId
from tests.doubles.jobs import a_job, finish, granted_claim, issue, model_reply


@pytest.fixture
def job_id(store: Store) -> JobId:
    """A job with one ended handoff and one model call."""
    job_id = a_job(store)
    issue(store, job_id, "a.1")
    claimed = granted_claim(store, job_id, "a.1")
    claimed.reserve(WorstCase(100, 100, 10, "some-model"))
    claimed.checkpoint(model_reply())
    finish(claimed)
    return job_id


def test_the_counts_are_the_sums_over_all_jobs(store: Store, job_id: JobId) -> None:
    assert store.connection.redis.hget(keys.progress(job_id), "turns") == b"1"
    assert find_wrong_counts(store.connection.redis) == []


@pytest.mark.parametrize("name", ["handoffs", "model_calls", "tokens", "cost_usd"])
def test_a_fact_that_was_counted_twice_is_found(store: Store, job_id: JobId, name: str) -> None:
    redis = store.connection.redis
    field = next(field for field in redis.hkeys(keys.METRICS) if field.startswith(name.encode()))

    redis.hincrby(keys.METRICS, field, 1)

    assert len(find_wrong_counts(redis)) == 1, f"the count of {job_id} is wrong"


@pytest.mark.parametrize("name", ["calls", "usd", "input", "output"])
def test_a_call_that_a_day_counted_twice_is_found(store: Store, job_id: JobId, name: str) -> None:
    redis = store.connection.redis
    (key,) = redis.scan_iter(match=keys.spending("*"))
    field = next(field for field in redis.hkeys(key) if field.startswith(name.encode()))

    redis.hincrby(key, field, 1)

    assert len(find_wrong_counts(redis)) == 1, f"the spending of {job_id} is wrong"


def test_a_handoff_that_was_not_counted_is_found(store: Store, job_id: JobId) -> None:
    redis = store.connection.redis
    redis.hdel(keys.METRICS, "handoffs\tdefault\tresearcher\tok")

    assert find_wrong_counts(redis) == [f"{keys.METRICS}: 0 handoffs ok, and the jobs have 1"], (
        job_id
    )
