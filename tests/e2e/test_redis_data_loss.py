"""Redis restarts with older data under running processes. Every job still ends once."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoff_queue.testing import MessagesServer
from tests.doubles.redis_faults import snapshot
from tests.e2e.fleet import SHORT_LEASES, SPECIALIST, Fleet, Script
from tests.running_system import SUPERVISOR, model_environment, running_system

pytestmark = pytest.mark.slow

ORDER = ("planner", "a", "b", "assessor")
"""Callers of the model, in order."""


@pytest.mark.parametrize("snapshot_at", ORDER[:-1])
def test_work_that_the_journal_lost_is_repeated_and_the_job_ends_once(
    tmp_path: Path, snapshot_at: str
) -> None:
    script = Script()
    later = ORDER[ORDER.index(snapshot_at) + 1]
    workers = (SUPERVISOR, ("w", "handoff_queue.workers.app", SPECIALIST))
    with (
        MessagesServer(script) as server,
        running_system(tmp_path, workers, model_environment(server, **SHORT_LEASES)) as system,
    ):
        fleet = Fleet(system, server, script, system.jobs())
        held = {role: script.hold("back", role) for role in (snapshot_at, later)}
        job_id = fleet.submit("back", a="", b="a")
        assert held[snapshot_at].arrived.wait(30)
        restore = snapshot(fleet.redis)
        held[snapshot_at].release.set()
        assert held[later].arrived.wait(30)
        version = fleet.jobs.standing(job_id).version

        restore()
        restored_version = fleet.jobs.standing(job_id).version
        held[later].release.set()

        fleet.wait_for_success(job_id, within_s=60)
        assert restored_version < version
        assert all(1 <= script.calls["back", role, 1] <= 2 for role in ORDER)
        assert script.calls["back", snapshot_at, 1] == 2, "its answer was lost with the data"
        fleet.wait_for_success(fleet.submit("afterwards", a=""))
        fleet.jobs.store.connection.close()
