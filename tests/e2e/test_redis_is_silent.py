"""Redis does not answer for longer than a lease. No process dies, and no model call is repeated."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from handoff_queue.shared.local.processes import Processes
from handoff_queue.testing import MessagesServer
from tests.e2e.fleet import Fleet, Script
from tests.running_system import EVERYONE, SUPERVISOR, over, running_system
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

LEASE_S = 3.0
SILENCE_S = 2.5 * LEASE_S


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Two supervisors, two workers, and a Redis that persists its data."""
    script, settings = (
        Script(),
        {"HANDOFF_LEASE_S": str(LEASE_S), "HANDOFF_SWEEP_INTERVAL_S": "0.2"},
    )
    with (
        MessagesServer(script) as server,
        running_system(tmp_path, (), over(server, **settings), append_only=True) as system,
    ):
        for kind, (_, app, queues) in (("s", SUPERVISOR), ("w", EVERYONE)):
            for name in (f"{kind}1", f"{kind}2"):
                system.processes.start(
                    system.celery(
                        name, "-A", app, "worker", "-n", f"{name}@%h", "-Q", queues, "-c", "3"
                    )
                )
        system.processes.wait_until_ready()
        fleet = Fleet(system, server, script, system.jobs())
        yield fleet
        fleet.jobs.store.connection.close()


def stopped(processes: Processes) -> int:
    """Stop the Redis process with a signal: its clients wait for an answer."""
    pid = processes.pids()["redis"]
    os.kill(pid, signal.SIGSTOP)
    return pid


def killed(processes: Processes) -> int:
    """Another Redis has been started, and has not come far."""
    before = processes.pids()["redis"]
    os.kill(before, signal.SIGKILL)
    pid = wait_until(
        lambda: next(
            (pid for pid in [processes.pids().get("redis")] if pid and pid != before), None
        ),
        what="another Redis",
    )
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    return pid


def passes(seconds: float) -> None:
    """Nothing is to happen in it."""
    until = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= until, what="the end of that time")


@pytest.mark.parametrize("silence", [stopped, killed])
def test_no_call_is_made_again_by_workers_or_supervisors_that_could_not_renew(
    fleet: Fleet, silence: Callable[[Processes], int]
) -> None:
    planned = fleet.model.hold("thought", "planner")
    thought = fleet.submit("thought", a="")
    held = [fleet.model.hold("worked", step) for step in "abcd"]
    worked = fleet.submit("worked", a="", b="", c="", d="")
    for one in (planned, *held):
        assert one.arrived.wait(30)
    thinks = fleet.pid_of(thought, "planner.1")
    name, idle = next(
        one
        for one in fleet.system.processes.pids().items()
        if one[0].startswith("s") and one[1] != thinks
    )

    redis = silence(fleet.system.processes)
    fleet.kill(idle)  # A supervisor that starts now knows of no silence.
    passes(SILENCE_S)
    wait_until(
        lambda: fleet.system.processes.pids().get(name) not in (None, idle),
        what="another supervisor",
    )
    os.kill(redis, signal.SIGCONT)
    passes(LEASE_S)
    for one in (planned, *held):
        one.go.set()

    for job_id in (thought, worked):
        result = fleet.ends_well(job_id)
        assert result.usage["cut"]["calls"] == 0, "nothing is booked at its worst case"
    assert set(fleet.model.calls.values()) == {1}, fleet.model.calls


def test_a_worker_that_died_in_the_silence_is_found_within_a_lease_of_its_end(fleet: Fleet) -> None:
    held = fleet.model.hold("died", "a")
    job_id = fleet.submit("died", a="")
    assert held.arrived.wait(30)
    again = fleet.model.hold("died", "a")

    pid = fleet.pid_of(job_id, "a.1")
    redis = stopped(fleet.system.processes)
    fleet.kill(pid)
    passes(SILENCE_S)
    os.kill(redis, signal.SIGCONT)

    assert again.arrived.wait(LEASE_S + 5)
    held.go.set()
    again.go.set()
    fleet.ends_well(job_id)
    assert fleet.model.calls["died", "a", 1] == 2
