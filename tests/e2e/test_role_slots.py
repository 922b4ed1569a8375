"""A supervisor's model calls leave half of its slots to decisions."""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.names import ROLES_QUEUE
from tests.e2e.fleet import Fleet
from tests.waiting import MAX_WAIT_S, wait_until

pytestmark = pytest.mark.slow

ROLE_SLOTS = 4
"""Half of the slots of two supervisors with four slots each."""


def test_other_jobs_continue_while_all_role_slots_are_busy(fleet: Fleet) -> None:
    step_call = fleet.model.hold("fan-in-while-busy", "a")
    working_job = fleet.submit("fan-in-while-busy", a="", b="a")
    assert step_call.arrived.wait(MAX_WAIT_S)
    names = [f"role-{n}" for n in range(3 * ROLE_SLOTS)]
    held = [fleet.model.hold(name, "planner") for name in names]
    job_ids = [fleet.submit(name, a="") for name in names]
    waiting = len(names) - ROLE_SLOTS
    wait_until(
        lambda: int(fleet.redis.llen(ROLES_QUEUE)) == waiting, expected="roles that wait for a slot"
    )
    wait_until(
        lambda: sum(call.arrived.is_set() for call in held) == ROLE_SLOTS,
        expected="a call in each role slot",
    )
    step_call.release.set()

    wait_until(
        lambda: fleet.event_types(working_job).count("handoff_issued") == 4,
        expected="the plan, both steps and the review",
    )
    assert sum(call.arrived.is_set() for call in held) == ROLE_SLOTS
    for call in held:
        call.release.set()
    for job_id in (working_job, *job_ids):
        fleet.wait_for_success(job_id)
