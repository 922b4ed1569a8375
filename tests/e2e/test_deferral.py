"""A handoff that waits long for its provider occupies no slot, claim or process, and continues
when the wait ends.
"""

from __future__ import annotations

from functools import partial

import pytest

from handoff_queue.shared.types.ids import JobId
from tests.e2e.fleet import Fleet
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


ROLES = ("a", "planner", "assessor")


def is_deferred(fleet: Fleet, job_id: JobId, role: str) -> bool:
    return fleet.handoff_info(job_id, f"{role}.1").deferred_until is not None


def test_deferred_handoffs_survive_all_processes_and_continue_in_time(fleet: Fleet) -> None:
    """Each of three jobs has a handoff of another role that is refused. The model refuses them
    together, because a refusal also stops the other calls of the model.
    """
    held = {role: fleet.model.hold(f"defer-{role}", role) for role in ROLES}
    for role in ROLES:
        fleet.model.refusals[f"defer-{role}", role, 1] = 8.0
    job_ids = {role: fleet.submit(f"defer-{role}", a="") for role in ROLES}
    for call in held.values():
        assert call.arrived.wait(60)
    for call in held.values():
        call.release.set()
    for role, job_id in job_ids.items():
        wait_until(
            partial(is_deferred, fleet, job_id, role),
            timeout_s=60,
            expected=f"the deferral of {role}",
        )
    for role, job_id in job_ids.items():
        deferred = fleet.handoff_info(job_id, f"{role}.1")
        assert (deferred.state, deferred.claims) == ("issued", 0)
        assert deferred.doing.startswith("rate limit (claude-")
    pids = {name: pid for name, pid in fleet.system.processes.get_pids().items() if name != "redis"}
    for pid in pids.values():
        fleet.kill(pid)

    for role, job_id in job_ids.items():
        result = fleet.wait_for_success(job_id, within_s=60)

        assert fleet.handoff_info(job_id, f"{role}.1").claims == 1
        assert fleet.model.calls[f"defer-{role}", role, 1] == 2
        assert result.usage["turns"] == 4, "the refused call counts as a turn"
