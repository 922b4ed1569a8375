"""The records measure the pause of a stopped process by the clock of the run."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from handoff_queue.chaos.faults import Fault, Stops, Strike
from tests.waiting import wait_until

PLANNED_S = 0.02


@pytest.fixture
def pid() -> Iterator[int]:
    with subprocess.Popen(["sleep", "60"]) as process:
        os.kill(process.pid, signal.SIGSTOP)
        yield process.pid
        process.kill()


def test_the_record_of_a_stop_has_its_actual_length_and_not_the_planned_length(pid: int) -> None:
    stops = Stops([])
    strike = Strike(Fault.STOP, "worker1", time.time(), lasts_s=PLANNED_S)
    stops.add(pid, strike)
    assert stops.targets == {"worker1"}
    wait_until(lambda: time.time() > strike.at + 5 * PLANNED_S)

    stops.wake(only_due=True)

    assert (stops.targets, stops.strikes[0].lasts_s > 5 * PLANNED_S) == (set(), True)
    wait_until(
        lambda: os.waitid(os.P_PID, pid, os.WCONTINUED | os.WNOHANG | os.WNOWAIT) is not None,
        expected="the end of the stop",
    )


def test_a_paused_process_stays_stopped_until_its_time(pid: int) -> None:
    stops = Stops([])
    stops.add(pid, Strike(Fault.STOP, "worker1", time.time(), lasts_s=60.0))

    stops.wake(only_due=True)

    assert stops.targets == {"worker1"}
    stops.wake()
    assert stops.strikes[0].lasts_s < 60.0
