"""After a kill of any process, a job ends once, and repeats at most the interrupted call."""

from __future__ import annotations

import signal
import time

import pytest

from handoff_queue.shared.types.events import HandoffFinished
from tests.e2e.fleet import RECOVERY_S, Fleet
from tests.waiting import MAX_WAIT_S, wait_until

pytestmark = pytest.mark.slow


def test_a_worker_killed_during_a_call_repeats_only_that_call_elsewhere(
    fleet: Fleet,
) -> None:
    usual_s = fleet.usual_s()
    held = fleet.model.hold("kill-worker", "a", turn=2)
    job_id = fleet.submit("kill-worker", turns=2, a="")
    assert held.arrived.wait(MAX_WAIT_S)
    pid = fleet.pid_of(job_id, "a.1")
    repeated = fleet.model.hold("kill-worker", "a", turn=2)
    fleet.kill(pid)
    killed_at = time.monotonic()

    assert repeated.arrived.wait(MAX_WAIT_S)
    assert fleet.handoff_info(job_id, "a.1").claims == 2
    repeated.release.set()
    result = fleet.wait_for_success(job_id)

    assert time.monotonic() - killed_at < RECOVERY_S + usual_s
    calls = {turn: fleet.model.calls["kill-worker", "a", turn] for turn in (1, 2)}
    assert calls == {1: 1, 2: 2}
    assert fleet.pid_of(job_id, "a.1") != pid
    assert result.usage["turns"] == 5, (
        "the planner, two turns of the step, the interrupted call, the assessor"
    )
    assert (result.usage["cut"]["calls"], result.usage["cut"]["tokens"] > 0) == (1, True), (
        "the interrupted call, at its worst case"
    )
    for part in ("turns", "input_tokens", "output_tokens"):
        assert sum(handoff["usage"][part] for handoff in result.handoffs) == result.usage[part]
    step_result = next(entry for entry in result.results if entry["handoff_id"] == "a.1")
    handoff = next(handoff for handoff in result.handoffs if handoff["handoff_id"] == "a.1")
    assert handoff["usage"]["turns"] == step_result["turns"] + 1
    assert handoff["lost_claims"] == 1
    held.release.set()


def test_a_supervisor_killed_while_it_plans_is_replaced(fleet: Fleet) -> None:
    held = fleet.model.hold("kill-supervisor", "planner")
    job_id = fleet.submit("kill-supervisor", a="", b="a")
    assert held.arrived.wait(MAX_WAIT_S)
    fleet.kill(fleet.pid_of(job_id, "planner.1"))

    fleet.wait_for_success(job_id)

    assert fleet.model.calls["kill-supervisor", "planner", 1] == 2
    held.release.set()


def test_a_supervisor_killed_while_it_reviews_is_replaced(fleet: Fleet) -> None:
    held = fleet.model.hold("kill-review", "assessor")
    job_id = fleet.submit("kill-review", a="")
    assert held.arrived.wait(MAX_WAIT_S)
    fleet.kill(fleet.pid_of(job_id, "assessor.1"))

    fleet.wait_for_success(job_id)

    assert fleet.model.calls["kill-review", "a", 1] == 1
    held.release.set()


def test_all_processes_killed_at_once_restart_and_continue(fleet: Fleet) -> None:
    held = [fleet.model.hold("kill-all", step) for step in ("a", "b")]
    job_id = fleet.submit("kill-all", a="", b="", c="a b")
    for call in held:
        assert call.arrived.wait(MAX_WAIT_S)
    pids = {name: pid for name, pid in fleet.system.processes.get_pids().items() if name != "redis"}
    for pid in pids.values():
        fleet.kill(pid)

    fleet.wait_for_success(job_id, within_s=60)

    assert [fleet.model.calls["kill-all", step, 1] for step in ("a", "b", "c")] == [2, 2, 1]
    for call in held:
        call.release.set()


def test_a_worker_that_wakes_up_after_its_lease_can_write_nothing(fleet: Fleet) -> None:
    held = fleet.model.hold("paused", "a")
    job_id = fleet.submit("paused", a="")
    assert held.arrived.wait(MAX_WAIT_S)
    pid = fleet.pid_of(job_id, "a.1")
    repeated = fleet.model.hold("paused", "a")
    fleet.kill(pid, signal.SIGSTOP)
    try:
        assert repeated.arrived.wait(MAX_WAIT_S)
        assert fleet.handoff_info(job_id, "a.1").claims == 2
        assert fleet.pid_of(job_id, "a.1") != pid
    finally:
        fleet.kill(pid, signal.SIGCONT)
        held.release.set()
        repeated.release.set()

    fleet.wait_for_success(job_id)

    ended = [
        recorded.event
        for recorded in fleet.jobs.events(job_id, follow=False)
        if isinstance(recorded.event, HandoffFinished)
    ]
    (finish,) = [event for event in ended if event.handoff_id == "a.1"]
    assert not finish.worker.endswith(f":{pid}")
    assert fleet.model.calls["paused", "a", 1] == 2


def test_a_worker_that_is_stopped_finishes_its_turn_and_releases_the_rest_at_once(
    fleet: Fleet,
) -> None:
    held = fleet.model.hold("deployed", "a")
    job_id = fleet.submit("deployed", turns=2, a="")
    assert held.arrived.wait(MAX_WAIT_S)
    pid = fleet.pid_of(job_id, "a.1")
    next_turn = fleet.model.hold("deployed", "a", turn=2)
    log = fleet.log_of(pid)
    earlier_length = len(log.read_text(errors="replace"))
    fleet.kill(pid, signal.SIGTERM)
    wait_until(
        lambda: "shutdown" in log.read_text(errors="replace")[earlier_length:].lower(),
        expected="the shutdown",
    )
    held.release.set()

    assert next_turn.arrived.wait(MAX_WAIT_S)
    assert fleet.pid_of(job_id, "a.1") != pid
    assert fleet.handoff_info(job_id, "a.1").claims == 1, (
        "the claim is released; a claim whose lease has ended would count"
    )
    next_turn.release.set()
    fleet.wait_for_success(job_id)
    assert [fleet.model.calls["deployed", "a", turn] for turn in (1, 2)] == [1, 1]
