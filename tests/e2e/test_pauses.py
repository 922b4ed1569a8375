"""A paused role stops in every worker after its running turn, and later continues from there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.types.ids import HandoffId
from tests.e2e.fleet import SPECIALIST, Fleet
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

STEPS = ("a", "b", "c", "d", "e")
"""More steps than the workers have slots."""


@pytest.fixture(autouse=True)
def nothing_stays_paused(fleet: Fleet) -> Iterator[None]:
    """Unpause all roles after each test, because the tests share the fleet."""
    yield
    for role in fleet.jobs.store.pauses.list_agents():
        fleet.admin.unpause(role)


def test_a_paused_role_stops_everywhere_after_its_turn_and_continues_without_repeating_a_turn(
    fleet: Fleet,
) -> None:
    held = {step: fleet.model.hold("switch", step) for step in STEPS}
    job_id = fleet.submit("switch", turns=2, **dict.fromkeys(STEPS, ""))
    wait_until(
        lambda: sum(call.arrived.is_set() for call in held.values()) == 3,
        expected="three running turns",
    )
    fleet.admin.pause(SPECIALIST, "it cites nonsense")
    for call in held.values():
        call.release.set()
    running = [step for step, call in held.items() if call.arrived.is_set()]
    wait_until(
        lambda: all(fleet.handoff_info(job_id, f"{step}.1").waits for step in running),
        expected="the hold of the handoffs that ran",
    )
    reason = fleet.jobs.info(job_id).waiting_for
    calls = sum(fleet.model.calls.values())
    other = fleet.submit("switch-too", a="")
    wait_until(
        lambda: fleet.issued(other)[-1].step_id == "a" if fleet.issued(other) else False,
        expected="a plan for another job",
    )

    assert (
        f"steps {', '.join(STEPS)} wait for `{SPECIALIST}`, which is paused (it cites nonsense):"
        " unpause it" in reason
    )
    assert sum(fleet.model.calls.values()) == calls + 1, (
        "the plan of the other job, and no turn of the paused role"
    )
    assert all(fleet.handoff_info(job_id, f"{step}.1").claims == 0 for step in STEPS)
    assert fleet.admin.unpause(SPECIALIST) is not None
    for id_of_job in (job_id, other):
        fleet.wait_for_success(id_of_job)
    assert all(fleet.model.calls["switch", step, turn] == 1 for step in STEPS for turn in (1, 2))


def test_workers_leave_the_messages_of_a_paused_role_in_its_queue(fleet: Fleet) -> None:
    logs = [fleet.system.processes.get_log_path(name) for name in ("w1", "w2", "w3")]

    def balance() -> set[int]:
        """Return 0 for a worker that consumes the queue, and 1 for a worker that has left it.

        Only the log after the latest start of each worker counts.
        """
        texts = [log.read_text().rpartition(" ready.")[2] for log in logs]
        return {
            text.count(f"Canceling queue {SPECIALIST}")
            - text.count(f"Started consuming from {SPECIALIST}")
            for text in texts
        }

    wait_until(lambda: balance() == {0}, expected="workers that take from the queue")
    fleet.admin.pause(SPECIALIST)
    wait_until(lambda: balance() == {1}, expected="workers that leave it")

    job_id = fleet.submit("left-alone", a="", b="")

    assert len(fleet.queued(job_id, 2)) == 2
    fleet.admin.unpause(SPECIALIST)
    fleet.wait_for_success(job_id)
    assert all(fleet.handoff_info(job_id, f"{step}.1").claims == 1 for step in ("a", "b"))


def test_while_the_planner_is_paused_no_job_gets_a_plan(fleet: Fleet) -> None:
    fleet.admin.pause("planner", "wait for the new prompt")
    job_id = fleet.submit("no-plan", a="")
    wait_until(
        lambda: fleet.redis.zscore(keys.PAUSED_HANDOFFS + "planner", f"{job_id}/planner.1"),
        expected="the planner's handoff",
    )

    assert (
        fleet.jobs.info(job_id).waiting_for
        == "the job waits for `planner`, which is paused (wait for the new prompt): unpause it"
    )
    assert fleet.model.calls["no-plan", "planner", 1] == 0
    fleet.admin.unpause("planner")
    fleet.wait_for_success(job_id)
    assert (
        fleet.jobs.store.jobs.read_handoffs(job_id, [HandoffId("planner.1")])[
            HandoffId("planner.1")
        ].claims
        == 1
    )
