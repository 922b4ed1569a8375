"""A handoff that waits long for its provider occupies no slot, claim or process, and continues
when the wait ends.
"""

from __future__ import annotations

import pytest

from tests.e2e.fleet import Fleet
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("role", ["a", "planner", "assessor"])
def test_a_parked_handoff_survives_all_processes_and_continues_in_time(
    fleet: Fleet, role: str
) -> None:
    name = f"park-{role}"
    handoff_id = f"{role}.1"
    fleet.model.refusals[name, role, 1] = 8.0
    job_id = fleet.submit(name, a="")
    wait_until(
        lambda: fleet.redis.hget(f"handoff:{{{job_id}}}:h:{handoff_id}", "parked"),
        timeout_s=60,
        expected="the parking",
    )
    parked = fleet.standing(job_id, handoff_id)
    assert (parked.state, parked.claims, parked.doing) == ("issued", 0, "rate limit")
    pids = {name: pid for name, pid in fleet.system.processes.pids().items() if name != "redis"}
    for pid in pids.values():
        fleet.kill(pid)

    result = fleet.wait_for_success(job_id, within_s=60)

    assert fleet.standing(job_id, handoff_id).claims == 1
    assert fleet.model.calls[name, role, 1] == 2
    assert result.usage["turns"] == 4, "the refused call counts as a turn"
