"""`handoff stats` prints the fleet as numbers, and `handoff top` shows it on a terminal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import termios
from pathlib import Path

import pytest

from tests import forked_processes
from tests.e2e.commands import Handoff
from tests.e2e.fleet import SPECIALIST, Fleet
from tests.e2e.test_approvals import read_until
from tests.waiting import MAX_WAIT_S, wait_until

pytestmark = pytest.mark.slow


def test_stats_counts_running_and_waiting_work(fleet: Fleet, tmp_path: Path) -> None:
    wait_until(
        lambda: len(fleet.jobs.store.presence.read_announcements()) == 3,
        expected="the restart of workers that earlier tests have killed",
    )
    job_id, held = fleet.occupy("numbers")
    waiting = fleet.submit("numbers-waits", a="")
    fleet.queued(waiting, 1)

    completed = Handoff(tmp_path).run("stats", "--json", HANDOFF_REDIS_URL=fleet.system.redis_url)

    stats = json.loads(completed.stdout)
    agent = next(agent for agent in stats["agents"] if agent["agent"] == SPECIALIST)
    assert (agent["workers"], agent["slots"], agent["busy"], agent["queued"]) == (3, 3, 3, 1)
    assert agent["wanted_slots"] == 4
    assert (stats["supervisors"], stats["open_jobs"]) == (2, 2)
    for call in held:
        call.release.set()
    fleet.wait_for_success(waiting)
    fleet.wait_for_end(job_id)


def test_in_top_a_digit_opens_a_job_escape_returns_and_q_ends(fleet: Fleet, tmp_path: Path) -> None:
    job_id, held = fleet.occupy("looked-at")
    with Handoff(tmp_path).on_a_terminal(
        "top",
        "--every",
        "0.2",
        TERM="xterm",
        COLUMNS="140",
        LINES="50",
        HANDOFF_REDIS_URL=fleet.system.redis_url,
    ) as (
        process,
        terminal,
    ):
        assert job_id in read_until(terminal, "1-9: open a job")
        os.write(terminal, b"1")
        assert f"{job_id}  running" in read_until(terminal, "Esc: back")
        os.write(terminal, b"\x1b")
        read_until(terminal, "1-9: open a job")
        os.write(terminal, b"q")
        assert process.wait(MAX_WAIT_S) == 0
    for call in held:
        call.release.set()
    fleet.wait_for_end(job_id)


@pytest.mark.parametrize("stop_signal", [signal.SIGTERM, signal.SIGHUP])
def test_top_restores_the_terminal_when_it_is_stopped(
    fleet: Fleet, tmp_path: Path, stop_signal: signal.Signals
) -> None:
    handoff, (test_end, command_end) = Handoff(tmp_path), os.openpty()
    before = termios.tcgetattr(command_end)
    environment = handoff.environment(TERM="xterm", HANDOFF_REDIS_URL=fleet.system.redis_url)
    command = [
        "env",
        "--default-signal=HUP",
        *handoff.command("top"),
    ]  # these tests may run under `nohup`
    process = subprocess.Popen(
        command, stdin=command_end, stdout=command_end, stderr=command_end, env=environment
    )
    try:
        read_until(test_end, "1-9: open a job")
        assert termios.tcgetattr(command_end) != before
        process.send_signal(stop_signal)
        assert "\x1b[?25h" in read_until(test_end, "\x1b[?1049l"), (
            "the cursor is visible, and the earlier screen is back"
        )
        assert process.wait(MAX_WAIT_S) == 130
        assert termios.tcgetattr(command_end) == before
    finally:
        process.kill()
        process.wait()
        os.close(test_end)
        os.close(command_end)


def test_a_terminal_without_drawing_gets_an_alternative(tmp_path: Path) -> None:
    handoff, (test_end, command_end) = Handoff(tmp_path), os.openpty()
    with (tmp_path / "err").open("wb") as errors:
        process = forked_processes.start(
            handoff.command("top"),
            handoff.environment(TERM="dumb"),
            tmp_path,
            command_end,
            errors.fileno(),
            command_end,
        )
    assert process.wait(MAX_WAIT_S) == 0
    os.close(command_end)
    os.close(test_end)

    assert len(handoff.read("err").splitlines()) == 1
    assert "`handoff stats`" in handoff.read("err")
