"""Redis restarts with older data under running processes. Every job still ends once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from handoff_queue.testing import MessagesServer
from tests.doubles.redis_faults import snapshot
from tests.e2e.fleet import SHORT_LEASES, SPECIALIST, Fleet, Script
from tests.running_system import SUPERVISOR, model_environment, running_system
from tests.waiting import MAX_WAIT_S

pytestmark = pytest.mark.slow

ORDER = ("planner", "a", "b", "assessor")
"""Callers of the model, in order."""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Start a supervisor and a worker on a separate Redis."""
    script = Script()
    workers = (SUPERVISOR, ("w", "handoff_queue.workers.app", SPECIALIST))
    with (
        MessagesServer(script) as server,
        running_system(
            tmp_path_factory.mktemp("fleet"), workers, model_environment(server, **SHORT_LEASES)
        ) as system,
    ):
        running = Fleet(system, server, script, system.admin)
        yield running


@pytest.mark.parametrize("snapshot_at", ORDER[:-1])
def test_work_that_the_journal_lost_is_repeated_and_the_job_ends_once(
    fleet: Fleet, snapshot_at: str
) -> None:
    name, later = f"back-{snapshot_at}", ORDER[ORDER.index(snapshot_at) + 1]
    held = {role: fleet.model.hold(name, role) for role in (snapshot_at, later)}
    job_id = fleet.submit(name, a="", b="a")
    assert held[snapshot_at].arrived.wait(MAX_WAIT_S)
    restore = snapshot(fleet.redis)
    held[snapshot_at].release.set()
    assert held[later].arrived.wait(MAX_WAIT_S)
    version = fleet.jobs.info(job_id).version

    restore()
    restored_version = fleet.jobs.info(job_id).version
    held[later].release.set()

    fleet.wait_for_success(job_id, within_s=60)
    assert restored_version < version
    assert all(1 <= fleet.model.calls[name, role, 1] <= 2 for role in ORDER)
    assert fleet.model.calls[name, snapshot_at, 1] == 2, "its answer was lost with the data"
    fleet.wait_for_success(fleet.submit(f"afterwards-{snapshot_at}", a=""))
