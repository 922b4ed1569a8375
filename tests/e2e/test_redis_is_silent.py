"""Redis does not answer for longer than a lease. No process dies, and no model call is repeated."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from handoff_queue.shared.local.child_process_restarts import Processes
from handoff_queue.testing import MessagesServer
from tests.e2e.fleet import Fleet, Script
from tests.running_system import ALL_SPECIALISTS, SUPERVISOR, model_environment, running_system
from tests.waiting import MAX_WAIT_S, wait_until

pytestmark = pytest.mark.slow

LEASE_S = 3.0
SILENCE_S = 2.5 * LEASE_S


@pytest.fixture(scope="module")
def running_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Start two supervisors, two workers, and a Redis that persists its data."""
    script, settings = (
        Script(),
        {"HANDOFF_LEASE_S": str(LEASE_S), "HANDOFF_SWEEP_INTERVAL_S": "0.2"},
    )
    with (
        MessagesServer(script) as server,
        running_system(
            tmp_path_factory.mktemp("fleet"),
            (),
            model_environment(server, **settings),
            append_only=True,
        ) as system,
    ):
        for kind, (_, app, queues) in (("s", SUPERVISOR), ("w", ALL_SPECIALISTS)):
            for name in (f"{kind}1", f"{kind}2"):
                system.start_worker(name, app, queues, 3)
        system.processes.wait_until_ready()
        fleet = Fleet(system, server, script, system.jobs())
        yield fleet
        fleet.jobs.store.connection.close()


@pytest.fixture
def fleet(running_fleet: Fleet) -> Fleet:
    """Return the fleet of all tests of this file when all its processes run."""
    wait_until(running_fleet.is_complete, expected="the fleet")
    return running_fleet


def stop_redis(processes: Processes) -> int:
    """Stop Redis with SIGSTOP, so that its clients get no answer. Return its process id."""
    pid = processes.get_pids()["redis"]
    os.kill(pid, signal.SIGSTOP)
    return pid


def kill_and_stop_redis(processes: Processes) -> int:
    """Kill Redis, and stop its successor with SIGSTOP while it starts. Return the successor's
    process id.
    """
    old_pid = processes.get_pids()["redis"]
    os.kill(old_pid, signal.SIGKILL)
    pid = wait_until(
        lambda: next(
            (pid for pid in [processes.get_pids().get("redis")] if pid and pid != old_pid), None
        ),
        expected="another Redis",
    )
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    return pid


def wait_for_seconds(seconds: float) -> None:
    """Wait for a time in which the fleet must do nothing."""
    until = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= until, expected="the end of that time")


@pytest.mark.parametrize("silence", [stop_redis, kill_and_stop_redis])
def test_processes_that_could_not_renew_their_leases_repeat_no_call(
    fleet: Fleet, silence: Callable[[Processes], int]
) -> None:
    planning, working = (f"{name}-{silence.__name__}" for name in ("thought", "worked"))
    planner_call = fleet.model.hold(planning, "planner")
    planning_job = fleet.submit(planning, a="")
    held = [fleet.model.hold(working, step) for step in "abcd"]
    working_job = fleet.submit(working, a="", b="", c="", d="")
    for call in (planner_call, *held):
        assert call.arrived.wait(MAX_WAIT_S)
    busy = fleet.pid_of(planning_job, "planner.1")
    name, idle = next(
        pid
        for pid in fleet.system.processes.get_pids().items()
        if pid[0].startswith("s") and pid[1] != busy
    )

    redis = silence(fleet.system.processes)
    fleet.kill(idle)  # A supervisor that starts now knows of no silence.
    wait_for_seconds(SILENCE_S)
    wait_until(
        lambda: fleet.system.processes.get_pids().get(name) not in (None, idle),
        expected="another supervisor",
    )
    os.kill(redis, signal.SIGCONT)
    wait_for_seconds(LEASE_S)
    for call in (planner_call, *held):
        call.release.set()

    for job_id in (planning_job, working_job):
        result = fleet.wait_for_success(job_id)
        assert result.usage["cut"]["calls"] == 0, "no call is charged at its worst case"
    calls = {call: n for call, n in fleet.model.calls.items() if call[0] in (planning, working)}
    assert set(calls.values()) == {1}, calls


def test_a_worker_that_died_during_the_silence_is_replaced_within_a_lease_after_it(
    fleet: Fleet,
) -> None:
    held = fleet.model.hold("died", "a")
    job_id = fleet.submit("died", a="")
    assert held.arrived.wait(MAX_WAIT_S)
    repeated = fleet.model.hold("died", "a")

    pid = fleet.pid_of(job_id, "a.1")
    redis = stop_redis(fleet.system.processes)
    fleet.kill(pid)
    wait_for_seconds(SILENCE_S)
    os.kill(redis, signal.SIGCONT)

    assert repeated.arrived.wait(LEASE_S + 5)
    held.release.set()
    repeated.release.set()
    fleet.wait_for_success(job_id)
    assert fleet.model.calls["died", "a", 1] == 2
