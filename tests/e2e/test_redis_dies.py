"""Running processes reconnect after a kill of Redis, idle or busy, without a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoff_queue.testing import MessagesServer
from tests.doubles.redis_faults import kill_redis
from tests.e2e.fleet import SHORT_LEASES, SPECIALIST, Fleet, Script
from tests.running_system import model_environment, running_system
from tests.waiting import MAX_WAIT_S

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_every_process_outlives_its_redis_idle_or_with_work_in_flight(
    tmp_path: Path, pool: str
) -> None:
    script = Script()
    with (
        MessagesServer(script) as server,
        running_system(
            tmp_path, (), model_environment(server, **SHORT_LEASES), append_only=True
        ) as system,
    ):
        for name, app, queues in (
            ("s", "handoff_queue.supervisor.app", "supervisor,submissions,roles"),
            ("w", "handoff_queue.workers.app", SPECIALIST),
        ):
            system.start_worker(name, app, queues, 2, "-P", pool)
        system.processes.wait_until_ready()
        fleet = Fleet(system, server, script, system.jobs())
        before = system.processes.get_pids()

        for number, busy in enumerate(["nobody", "a", "planner", "a"]):
            held = script.hold(f"killed-{number}", busy)
            job_id = None if busy == "nobody" else fleet.submit(f"killed-{number}", a="", b="a")
            assert job_id is None or held.arrived.wait(MAX_WAIT_S)
            kill_redis(system.processes)
            held.release.set()
            assert fleet.wait_for_success(job_id or fleet.submit(f"killed-{number}", a="", b="a"))

        after = system.processes.get_pids()
        assert {name: after[name] for name in "sw"} == {name: before[name] for name in "sw"}
        fleet.jobs.store.connection.close()
