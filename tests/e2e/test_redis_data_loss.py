"""Redis comes back with older data under running processes: every job still ends once, and
nothing is written over.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from handoff_queue.testing import MessagesServer
from tests.doubles.redis_faults import snapshot
from tests.e2e.fleet import QUICK, SPECIALIST, Fleet, Script
from tests.running_system import SUPERVISOR, over, running_system

pytestmark = pytest.mark.slow

ORDER = ("planner", "a", "b", "assessor")
"""The model's callers, in order."""


@pytest.mark.parametrize("back_to", ORDER[:-1])
def test_work_that_the_journal_lost_is_repeated_and_the_job_ends_once(
    tmp_path: Path, back_to: str
) -> None:
    script = Script()
    later = ORDER[ORDER.index(back_to) + 1]
    workers = (SUPERVISOR, ("w", "handoff_queue.workers.app", SPECIALIST))
    with (
        MessagesServer(script) as server,
        running_system(tmp_path, workers, over(server, **QUICK)) as system,
    ):
        fleet = Fleet(system, server, script, system.jobs())
        held = {who: script.hold("back", who) for who in (back_to, later)}
        job_id = fleet.submit("back", a="", b="a")
        assert held[back_to].arrived.wait(30)
        go_back = snapshot(fleet.redis)
        held[back_to].go.set()
        assert held[later].arrived.wait(30)
        version = fleet.jobs.standing(job_id).version

        go_back()
        went_back_to = fleet.jobs.standing(job_id).version
        held[later].go.set()

        fleet.ends_well(job_id, within_s=60)
        assert went_back_to < version
        assert all(1 <= script.calls["back", who, 1] <= 2 for who in ORDER)
        assert script.calls["back", back_to, 1] == 2, "its answer was lost with the data"
        fleet.ends_well(fleet.submit("afterwards", a=""))
        fleet.jobs.store.connection.close()
