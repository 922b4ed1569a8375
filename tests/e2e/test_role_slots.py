"""A supervisor's model calls leave half of its slots to decisions."""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.names import ROLES_QUEUE
from tests.e2e.fleet import Fleet
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

ROLE_SLOTS = 4
"""Two supervisors with four slots each."""


def test_while_as_many_roles_think_as_may_other_jobs_fan_in(fleet: Fleet) -> None:
    step = fleet.model.hold("fan-in", "a")
    working = fleet.submit("fan-in", a="", b="a")
    assert step.arrived.wait(20)
    names = [f"role-{n}" for n in range(3 * ROLE_SLOTS)]
    held = [fleet.model.hold(name, "planner") for name in names]
    job_ids = [fleet.submit(name, a="") for name in names]
    waiting = len(names) - ROLE_SLOTS
    wait_until(
        lambda: int(fleet.redis.llen(ROLES_QUEUE)) == waiting, what="roles that wait for a slot"
    )
    wait_until(
        lambda: sum(one.arrived.is_set() for one in held) == ROLE_SLOTS,
        what="a call of each who thinks",
    )
    step.go.set()

    wait_until(
        lambda: fleet.shown(working).count("handoff_issued") == 4,
        what="the plan, both steps and the review",
    )
    assert sum(one.arrived.is_set() for one in held) == ROLE_SLOTS
    for one in held:
        one.go.set()
    for job_id in (working, *job_ids):
        fleet.ends_well(job_id)
