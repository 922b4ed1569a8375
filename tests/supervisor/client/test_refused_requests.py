"""A refused request gives a one-line error and leaves nothing in Redis."""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.errors import StoreRefusesWrites, UserError
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request


@pytest.mark.parametrize("tenant", ["", " "])
def test_a_tenant_without_a_name_is_refused(jobs: Client, tenant: str) -> None:
    """The jobs of an unnamed tenant would count against the daily budget of the default tenant."""
    with pytest.raises(UserError, match="the tenant is empty: name a tenant, or leave it out"):
        jobs.submit(Request("Compare.", tenant=tenant))


@pytest.mark.parametrize("tenant", ["two\nlines", "b" * 101])
def test_a_tenant_name_that_is_not_one_short_line_is_refused(jobs: Client, tenant: str) -> None:
    with pytest.raises(UserError, match="one line of at most 100 characters"):
        jobs.submit(Request("Compare.", tenant=tenant))


def test_a_job_that_redis_refuses_is_not_enqueued_and_the_client_raises(
    jobs: Client,
) -> None:
    redis = jobs.store.connection.redis
    redis.execute_command("REPLICAOF", "127.0.0.1", "1")
    try:
        with pytest.raises(StoreRefusesWrites, match=r"^Redis is read-only: the Redis URL points"):
            jobs.submit(Request("Compare."))
    finally:
        redis.execute_command("REPLICAOF", "NO", "ONE")

    assert jobs.newest() == []
