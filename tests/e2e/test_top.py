"""The fleet as numbers and on a terminal, over real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import termios
from pathlib import Path

import pytest

from tests.e2e.commands import Handoff
from tests.e2e.fleet import SPECIALIST, Fleet
from tests.e2e.test_approvals import read_until
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def test_top_shows_running_and_waiting_work_live(fleet: Fleet, tmp_path: Path) -> None:
    wait_until(
        lambda: len(fleet.jobs.store.presence.announcements()) == 3,
        what="the end of what tests before have killed",
    )
    job_id, held = fleet.occupy("numbers")
    waiting = fleet.submit("numbers-waits", a="")
    fleet.queued(waiting, 1)

    done = Handoff(tmp_path).run("stats", "--json", HANDOFF_REDIS_URL=fleet.system.redis_url)

    said = json.loads(done.stdout)
    role = next(one for one in said["roles"] if one["role"] == SPECIALIST)
    assert (role["workers"], role["slots"], role["busy"], role["queued"]) == (3, 3, 3, 1)
    assert role["wanted_slots"] == 4
    assert (said["supervisors"], said["open_jobs"]) == (2, 2)
    for one in held:
        one.go.set()
    fleet.ends_well(waiting)
    fleet.ends(job_id)


def test_a_digit_opens_a_job_escape_leads_back_and_q_ends_it(fleet: Fleet, tmp_path: Path) -> None:
    job_id, held = fleet.occupy("looked-at")
    handoff, (ours, theirs) = Handoff(tmp_path), os.openpty()
    environment = handoff.environment(
        TERM="xterm", COLUMNS="140", LINES="50", HANDOFF_REDIS_URL=fleet.system.redis_url
    )
    process = subprocess.Popen(
        handoff.command("top", "--every", "0.2"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
    )
    os.close(theirs)
    try:
        assert job_id in read_until(ours, "1-9: open a job")
        os.write(ours, b"1")
        assert f"{job_id}  running" in read_until(ours, "Esc: back")
        os.write(ours, b"\x1b")
        read_until(ours, "1-9: open a job")
        os.write(ours, b"q")
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        for one in held:
            one.go.set()
    fleet.ends(job_id)


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGHUP])
def test_top_restores_the_terminal_when_it_is_stopped(
    fleet: Fleet, tmp_path: Path, told: signal.Signals
) -> None:
    handoff, (ours, theirs) = Handoff(tmp_path), os.openpty()
    before = termios.tcgetattr(theirs)
    environment = handoff.environment(TERM="xterm", HANDOFF_REDIS_URL=fleet.system.redis_url)
    listens = [
        "env",
        "--default-signal=HUP",
        *handoff.command("top"),
    ]  # these tests may run under `nohup`
    process = subprocess.Popen(listens, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    try:
        read_until(ours, "1-9: open a job")
        assert termios.tcgetattr(theirs) != before
        process.send_signal(told)
        assert "\x1b[?25h" in read_until(ours, "\x1b[?1049l"), (
            "the cursor is seen, and the screen is the one before"
        )
        assert process.wait(30) == 130
        assert termios.tcgetattr(theirs) == before
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)


def test_a_terminal_without_drawing_gets_an_alternative(tmp_path: Path) -> None:
    handoff, (ours, theirs) = Handoff(tmp_path), os.openpty()
    environment = handoff.environment(TERM="dumb")
    done = subprocess.run(
        handoff.command("top"),
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        check=False,
    )
    os.close(theirs)
    os.close(ours)

    assert done.returncode == 0
    assert len(done.stderr.splitlines()) == 1
    assert "`handoff stats`" in done.stderr
