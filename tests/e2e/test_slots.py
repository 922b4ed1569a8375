"""All slots of a worker work while messages wait, in each pool. A long handoff occupies only its
slot, also when the worker stops.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from handoff_queue.testing import MessagesServer
from tests.e2e.fleet import SPECIALIST, Fleet, HeldCall, Script
from tests.running_system import SUPERVISOR, RunningSystem, model_environment, running_system
from tests.waiting import MAX_WAIT_S, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("pool", ["threads", "prefork"])]

SLOTS = 4


@contextmanager
def fleet_with_pool(pool: str, folder: Path) -> Iterator[Fleet]:
    """Start a supervisor, and one worker with this pool."""
    script = Script()
    with (
        MessagesServer(script) as server,
        running_system(folder, (SUPERVISOR,), model_environment(server)) as system,
    ):
        start_worker(system, pool, "worker")
        system.processes.wait_until_ready()
        jobs = system.jobs()
        yield Fleet(system, server, script, jobs)
        jobs.store.connection.close()


def start_worker(system: RunningSystem, pool: str, name: str) -> None:
    """Start a worker with this pool."""
    system.start_worker(name, "handoff_queue.workers.app", SPECIALIST, SLOTS, "-P", pool)


@contextmanager
def held_calls(fleet: Fleet, name: str, steps: list[str]) -> Iterator[list[HeldCall]]:
    """Hold the model's answers to these steps until the block ends or the test releases them."""
    held = [fleet.model.hold(name, step) for step in steps]
    with ExitStack() as stack:
        for call in held:
            stack.callback(call.release.set)
        yield held


def test_no_slot_is_idle_while_work_waits(pool: str, tmp_path: Path) -> None:
    steps = [f"s{n}" for n in range(3 * SLOTS)]
    with fleet_with_pool(pool, tmp_path) as fleet:
        with held_calls(fleet, "crowd", steps) as held:
            job_id = fleet.submit("crowd", **plan_of(steps))
            running = [next_arrived(held) for _ in range(SLOTS)]
            while held:
                running.pop(0).release.set()
                running.append(next_arrived(held))
        fleet.wait_for_success(job_id)


def plan_of(steps: list[str]) -> dict[str, Any]:
    """Return a plan of independent steps."""
    return dict.fromkeys(steps, "")


def next_arrived(held: list[HeldCall]) -> HeldCall:
    """Wait for the first of the calls to arrive, and remove it from the list."""
    arrived = wait_until(
        lambda: [call for call in held if call.arrived.is_set()], expected="another call"
    )
    held.remove(arrived[0])
    return arrived[0]


def test_a_long_handoff_delays_no_later_handoff(pool: str, tmp_path: Path) -> None:
    long, short = [f"long{n}" for n in range(SLOTS - 1)], [f"short{n}" for n in range(12)]
    with fleet_with_pool(pool, tmp_path) as fleet:
        with held_calls(fleet, "long", long) as held:
            first = fleet.submit("long", **plan_of(long))
            assert all(call.arrived.wait(MAX_WAIT_S) for call in held)
            fleet.wait_for_success(fleet.submit("short", **plan_of(short)))
        fleet.wait_for_success(first)


def test_a_stopping_worker_releases_handoffs_without_waiting_for_others(
    pool: str, tmp_path: Path
) -> None:
    with fleet_with_pool(pool, tmp_path) as fleet:
        pid = fleet.system.processes.get_pids()["worker"]
        with held_calls(fleet, "deploy", ["long", "short"]) as (long, short):
            job_id = fleet.submit("deploy", turns=2, **plan_of(["long", "short"]))
            assert long.arrived.wait(MAX_WAIT_S)
            assert short.arrived.wait(MAX_WAIT_S)
            repeated = fleet.model.hold("deploy", "short", turn=2)
            log = fleet.log_of(pid)
            with frozen_supervisor(fleet):
                fleet.kill(pid, signal.SIGTERM)
                wait_until(
                    lambda: "shutdown" in log.read_text(errors="replace").lower(),
                    expected="the shutdown",
                )
                short.release.set()
                # Redis may give the message to a pop that the stopping worker has still sent
                start_worker(fleet.system, pool, "other")
                assert repeated.arrived.wait(MAX_WAIT_S), (
                    "the short handoff moves while the long handoff still runs"
                )
                repeated.release.set()
        fleet.wait_for_success(job_id)


@contextmanager
def frozen_supervisor(fleet: Fleet) -> Iterator[None]:
    """Freeze the supervisor until the block ends, so that no sweeper publishes a lost message."""
    pid = fleet.system.processes.get_pids()["supervisor"]
    fleet.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        fleet.kill(pid, signal.SIGCONT)
