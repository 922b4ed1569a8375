"""`handoff watch` shows the heartbeats of a slow model, survives an outage of Redis, and
updates a terminal.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from handoff_queue.shared.types.ids import JobId
from handoff_queue.testing import MessagesServer
from tests.doubles.redis_faults import kill_redis
from tests.e2e.commands import Handoff
from tests.e2e.fleet import SPECIALIST, Fleet, HeldCall, Script
from tests.e2e.test_approvals import read_until
from tests.running_system import SUPERVISOR, model_environment, running_system
from tests.waiting import MAX_WAIT_S, wait_until

pytestmark = pytest.mark.slow
HEARTBEAT_WITHIN_S = 5.0
"""Longest promised time between heartbeats, in seconds."""
LONG_LEASE = {"HANDOFF_LEASE_S": "60"}
"""With this lease, renewals alone would give a heartbeat every 20 s."""
HEARTBEAT = re.compile(r"a \(generalist\) turn 1, writing, \d+ words, (\d+) s")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Start a supervisor and a worker with three slots, and a Redis that persists its data."""
    script = Script()
    folder = tmp_path_factory.mktemp("watched")
    with (
        MessagesServer(script) as server,
        running_system(
            folder, (), model_environment(server, **LONG_LEASE), append_only=True
        ) as system,
    ):
        for name, app, queues in (
            ("s", SUPERVISOR[1], SUPERVISOR[2]),
            ("w", "handoff_queue.workers.app", SPECIALIST),
        ):
            system.start_worker(name, app, queues, 3)
        system.processes.wait_until_ready()
        fleet = Fleet(system, server, script, system.jobs())
        yield fleet
        fleet.jobs.store.connection.close()


@dataclass(frozen=True)
class SlowJob:
    """A job whose step `a` waits for a silent model until `wait_for_end`. Step `b` waits for
    `a`.
    """

    fleet: Fleet
    job_id: JobId
    held: HeldCall

    def wait_for_end(self) -> None:
        self.held.release.set()
        self.fleet.wait_for_success(self.job_id, within_s=60)


def slow_job(fleet: Fleet, name: str) -> SlowJob:
    held = fleet.model.hold(name, "a")
    job_id = fleet.submit(name, a="", b="a")
    assert held.arrived.wait(MAX_WAIT_S)
    return SlowJob(fleet, job_id, held)


def test_every_running_handoff_gives_a_heartbeat_within_5_s_for_any_model_and_lease(
    fleet: Fleet,
) -> None:
    job, ages = slow_job(fleet, "heartbeats"), list[float]()
    end = time.monotonic() + 11

    def is_over() -> bool:
        info = fleet.handoff_info(job.job_id, "a.1")
        ages.append(fleet.jobs.store.connection.now() - (info.heartbeat_at or 0))
        return time.monotonic() > end

    wait_until(is_over, expected="the end of eleven seconds")

    assert max(ages) <= HEARTBEAT_WITHIN_S
    job.wait_for_end()


def test_a_log_names_the_running_handoff_every_5_s(fleet: Fleet, tmp_path: Path) -> None:
    job, handoff = slow_job(fleet, "in-a-log"), Handoff(tmp_path)

    with handoff.started("watch", job.job_id, HANDOFF_REDIS_URL=fleet.system.redis_url) as process:
        wait_until(
            lambda: len(HEARTBEAT.findall(handoff.read("err"))) >= 2,
            timeout_s=28,
            expected="two heartbeats",
        )
        job.wait_for_end()
        assert process.wait(MAX_WAIT_S) == 0

    seconds = [int(text) for text in HEARTBEAT.findall(handoff.read("err"))]
    assert all(later - earlier <= HEARTBEAT_WITHIN_S + 1 for earlier, later in pairwise(seconds)), (
        "whole seconds, rounded"
    )
    assert "so far 1 of 200 turns, 120 tokens" in handoff.read("err")
    assert "no heartbeat" not in handoff.read("err")


def test_an_outage_of_redis_loses_and_repeats_no_line(fleet: Fleet, tmp_path: Path) -> None:
    job, handoff = slow_job(fleet, "away"), Handoff(tmp_path)

    with handoff.started("watch", job.job_id, HANDOFF_REDIS_URL=fleet.system.redis_url) as process:
        handoff.wait_for_text("a (generalist): works")
        kill_redis(fleet.system.processes)
        handoff.wait_for_text("trying again")
        job.wait_for_end()
        assert process.wait(60) == 0

    afterwards = handoff.run("watch", job.job_id, HANDOFF_REDIS_URL=fleet.system.redis_url)
    lines = event_lines(handoff.read("err"))
    assert lines == event_lines(afterwards.stderr)
    assert [line for line in lines if line.startswith("b (")] == [
        "b (generalist): handed over",
        "b (generalist): ok, 1 turn, 120 tokens",
    ]


def test_a_waiting_client_gets_the_answer_after_an_outage_of_redis(
    fleet: Fleet, tmp_path: Path
) -> None:
    job, handoff = slow_job(fleet, "waited-for"), Handoff(tmp_path)

    with handoff.started(
        "result", job.job_id, "--wait", "120", HANDOFF_REDIS_URL=fleet.system.redis_url
    ) as process:
        wait_until(lambda: _has_waiting_client(fleet), expected="a client that waits for the job")
        kill_redis(fleet.system.processes)
        job.wait_for_end()
        assert process.wait(60) == 0, handoff.read("err")

    assert handoff.read("out").strip() == fleet.jobs.result(job.job_id).answer


def _has_waiting_client(fleet: Fleet) -> bool:
    return any(
        client["cmd"] == "xread" and "b" in client["flags"] for client in fleet.redis.client_list()
    )


def test_a_terminal_shows_the_tree_live_with_the_cause_of_each_wait(
    fleet: Fleet, tmp_path: Path
) -> None:
    job = slow_job(fleet, "on-a-terminal")
    with Handoff(tmp_path).on_a_terminal(
        "watch",
        job.job_id,
        TERM="xterm",
        COLUMNS="140",
        LINES="50",
        HANDOFF_REDIS_URL=fleet.system.redis_url,
    ) as (
        process,
        terminal,
    ):
        screen = read_until(terminal, "waits for a")
        assert f"{job.job_id}  running" in screen
        assert "of 200 turns" in screen
        assert "turn 1  writing, " in read_until(terminal, "writing, ")
        job.wait_for_end()
        read_until(terminal, "So it is.")
        assert process.wait(MAX_WAIT_S) == 0


def event_lines(output: str) -> list[str]:
    """Return the lines about events, without momentary lines: claims, heartbeats, waits and
    the final account.
    """
    momentary = (": works", "at work:", "trying again", "Redis is back", "waits for")
    return [
        line
        for line in output.partition("\n\n")[0].splitlines()
        if not any(text in line for text in momentary)
    ]
