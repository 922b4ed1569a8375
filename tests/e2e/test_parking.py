"""A handoff that must wait long for its provider holds no slot, no claim and no process, and
comes back when it is time.
"""

from __future__ import annotations

import pytest

from tests.e2e.fleet import Fleet
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("who", ["a", "planner", "assessor"])
def test_a_parked_handoff_survives_all_processes_and_continues_in_time(
    fleet: Fleet, who: str
) -> None:
    name = f"park-{who}"
    handoff_id = f"{who}.1"
    fleet.model.refusals[name, who, 1] = 8.0
    job_id = fleet.submit(name, a="")
    wait_until(
        lambda: fleet.redis.hget(f"handoff:{{{job_id}}}:h:{handoff_id}", "parked"),
        timeout_s=60,
        what="the parking",
    )
    parked = fleet.standing(job_id, handoff_id)
    assert (parked.state, parked.claims, parked.doing) == ("issued", 0, "rate limit")
    pids = {name: pid for name, pid in fleet.system.processes.pids().items() if name != "redis"}
    for pid in pids.values():
        fleet.kill(pid)

    result = fleet.ends_well(job_id, within_s=60)

    assert fleet.standing(job_id, handoff_id).claims == 1
    assert fleet.model.calls[name, who, 1] == 2
    assert result.usage["turns"] == 4, "the refused call was a turn"
