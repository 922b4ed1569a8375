"""Redis refuses writes, or is slow, under running jobs. A submission reports it in one line, and
the jobs continue later.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from handoff_queue.shared.types.errors import StoreUnavailable
from handoff_queue.supervisor.client.request import Request
from handoff_queue.testing import MessagesServer
from tests.e2e.fleet import LEASE_S, SHORT_LEASES, SPECIALIST, Fleet, Script
from tests.running_system import SUPERVISOR, model_environment, running_system
from tests.waiting import MAX_WAIT_S, wait_until

pytestmark = pytest.mark.slow

BALLAST_BYTES = 16_000_000


@pytest.fixture(scope="module")
def running_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Start a supervisor and a worker on a separate Redis."""
    script = Script()
    workers = (SUPERVISOR, ("w", "handoff_queue.workers.app", SPECIALIST))
    with (
        MessagesServer(script) as server,
        running_system(
            tmp_path_factory.mktemp("fleet"), workers, model_environment(server, **SHORT_LEASES)
        ) as system,
    ):
        running = Fleet(system, server, script, system.jobs())
        yield running
        running.jobs.store.connection.close()


@pytest.fixture
def fleet(running_fleet: Fleet) -> Iterator[Fleet]:
    """Yield the fleet of all tests of this file. Its Redis accepts writes again after each test."""
    yield running_fleet
    restore_writes(running_fleet.redis)


def fill_memory(redis: Any, share: float = 1.1) -> None:
    """Fill Redis up to this share of its maxmemory.

    The data is made inside Redis. Sent data would leave a client buffer of its size, which counts
    as used memory for seconds. With this much data, the other client buffers (about 100 kB) make no
    difference.
    """
    redis.setrange("ballast", BALLAST_BYTES - 1, "0")
    redis.expire("ballast", 600)
    redis.config_set("maxmemory", int(redis.info("memory")["used_memory"] / share))


def make_read_only(redis: Any) -> None:
    redis.execute_command("REPLICAOF", "127.0.0.1", "1")


def restore_writes(redis: Any) -> None:
    redis.config_set("maxmemory", 0)
    redis.execute_command("REPLICAOF", "NO", "ONE")


@pytest.mark.parametrize(
    ("break_redis", "reason"),
    [(fill_memory, "Redis is filled to"), (make_read_only, "Redis is read-only: the Redis URL")],
    ids=["full", "read-only"],
)
def test_jobs_wait_for_a_redis_that_refuses_writes_and_submit_reports_it(
    fleet: Fleet, break_redis: Any, reason: str
) -> None:
    name = f"refused-{break_redis.__name__}"
    held = fleet.model.hold(name, "a")
    job_id = fleet.submit(name, turns=2, a="", b="a")
    assert held.arrived.wait(MAX_WAIT_S)
    break_redis(fleet.redis)
    held.release.set()
    wait_until(
        lambda: fleet.has_logged("cannot renew the lease", job_id),
        timeout_s=20,
        expected="a lease that cannot be renewed",
    )

    with pytest.raises(StoreUnavailable, match=reason):
        fleet.jobs.submit(Request("plan another"))
    restore_writes(fleet.redis)

    fleet.wait_for_success(job_id, within_s=60)
    calls = {
        call: n for call, n in fleet.model.calls.items() if call[:2] in ((name, "a"), (name, "b"))
    }
    assert list(calls.values()) == [1] * 4, calls
    fleet.wait_for_success(fleet.submit(f"after-{name}", a=""))


def test_a_job_survives_a_redis_that_is_slow_for_longer_than_a_lease(fleet: Fleet) -> None:
    held = fleet.model.hold("slow", "a")
    job_id = fleet.submit("slow", a="", b="a")
    assert held.arrived.wait(MAX_WAIT_S)
    fleet.redis.execute_command("CLIENT", "PAUSE", int(2 * LEASE_S * 1000))
    held.release.set()

    fleet.wait_for_success(job_id, within_s=60)


def test_above_the_memory_mark_no_job_is_accepted_and_running_jobs_continue(fleet: Fleet) -> None:
    held = fleet.model.hold("marked", "a")
    fleet.model.plans["marked"] = {"a": "", "b": "a"}
    job_id = fleet.jobs.submit(request := Request("plan marked", idempotency_key="once"))
    assert held.arrived.wait(MAX_WAIT_S)
    fill_memory(fleet.redis, share=0.9)
    held.release.set()

    with pytest.raises(StoreUnavailable, match="above 80 % no new job is taken"):
        fleet.jobs.submit(Request("plan another"))
    assert fleet.jobs.submit(request) == job_id, (
        "a repeated request with the same key gets the existing job"
    )
    fleet.wait_for_success(job_id)
