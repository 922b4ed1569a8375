"""Schedules have no end, and keep their documents. A tenant cannot fill Redis with them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from handoff_queue.shared.store import keys, schedules
from handoff_queue.supervisor.client.client import Client
from tests.supervisor.serve.conftest import ClientOf

pytestmark = pytest.mark.slow

MOST = 3


@pytest.fixture
def redis_with_little_room(jobs: Client) -> Iterator[None]:
    """Give Redis a tenth more memory than it uses, which is above the mark."""
    redis = jobs.store.connection.redis
    redis.config_set("maxmemory-policy", "noeviction")
    redis.config_set("maxmemory", int(redis.info("memory")["used_memory"] * 1.1))
    yield
    redis.config_set("maxmemory", 0)


def schedule(name: str) -> dict[str, object]:
    job = {"text": "Look.", "documents": {"a.md": "The price is five euros. " * 1_000}}
    return {"name": name, "cron": "0 0 1 1 *", "job": job}


def stored_jobs(jobs: Client) -> int:
    """Return the number of jobs that are stored with their documents for schedules."""
    return len(jobs.store.connection.redis.keys(keys.schedule_job("*")))


def test_a_tenant_with_all_its_schedules_gets_no_other_and_other_tenants_do(
    jobs: Client, client_with: ClientOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "MAX_SCHEDULES", MOST)
    # the names of the tenants end alike
    flooding, other, operator = (
        client_with("submit", "a"),
        client_with("submit", "b/a"),
        client_with(),
    )
    answers = [flooding.post("/v1/schedules", json=schedule(f"s{n}")) for n in range(MOST + 1)]
    assert [answer.status_code for answer in answers] == [201, 201, 201, 400]
    assert "has 3 schedules: remove some" in answers[-1].json()["detail"]
    assert stored_jobs(jobs) == MOST, "the documents of the refused schedule are gone"
    assert other.post("/v1/schedules", json=schedule("s0")).status_code == 201

    assert operator.delete("/v1/schedules/s0?tenant=a").status_code == 204
    assert flooding.post("/v1/schedules", json=schedule("s9")).status_code == 201


def test_a_redis_above_the_mark_takes_no_schedule(
    jobs: Client, client_with: ClientOf, redis_with_little_room: None
) -> None:
    answer = client_with("submit", "a").post("/v1/schedules", json=schedule("s"))
    assert answer.status_code == 503
    assert "no new job is taken" in answer.json()["detail"]
    assert stored_jobs(jobs) == 0
