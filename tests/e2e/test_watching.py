"""`handoff watch` over real processes: signs of life of a model that takes its time, a Redis
that goes away, and a terminal.
"""

from __future__ import annotations

import os
import re
import subprocess
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
from tests.e2e.fleet import SPECIALIST, Fleet, Held, Script
from tests.e2e.test_approvals import read_until
from tests.running_system import SUPERVISOR, over, running_system
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
SIGN_WITHIN_S = 5.0
"""Promised time until a sign of life, in seconds."""
LONG_LEASE = {"HANDOFF_LEASE_S": "60"}
"""Three renewals in it would be a sign of life every 20 s."""
SAID = re.compile(r"a \(generalist\) turn 1, thinking, (\d+) s")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A supervisor and a worker with three slots, and a Redis that persists its data."""
    script = Script()
    folder = tmp_path_factory.mktemp("watched")
    with (
        MessagesServer(script) as server,
        running_system(folder, (), over(server, **LONG_LEASE), append_only=True) as system,
    ):
        for name, app, queues in (
            ("s", SUPERVISOR[1], SUPERVISOR[2]),
            ("w", "handoff_queue.workers.app", SPECIALIST),
        ):
            system.processes.start(
                system.celery(
                    name, "-A", app, "worker", "-n", f"{name}@%h", "-Q", queues, "-c", "3"
                )
            )
        system.processes.wait_until_ready()
        fleet = Fleet(system, server, script, system.jobs())
        yield fleet
        fleet.jobs.store.connection.close()


@dataclass(frozen=True)
class Watched:
    """A job whose step `a` is thinking, and does not say a word, until the test lets it; `b`
    waits for it.
    """

    fleet: Fleet
    job_id: JobId
    held: Held

    def ends(self) -> None:
        self.held.go.set()
        self.fleet.ends_well(self.job_id, within_s=60)


def slow_job(fleet: Fleet, name: str) -> Watched:
    held = fleet.model.hold(name, "a")
    job_id = fleet.submit(name, a="", b="a")
    assert held.arrived.wait(30)
    return Watched(fleet, job_id, held)


def test_every_running_handoff_gives_a_sign_of_life_within_5_s_for_any_model_and_lease(
    fleet: Fleet,
) -> None:
    job, ages = slow_job(fleet, "silent"), list[float]()
    until = time.monotonic() + 11

    def is_over() -> bool:
        standing = fleet.standing(job.job_id, "a.1")
        ages.append(fleet.jobs.store.connection.now() - (standing.beat_at or 0))
        return time.monotonic() > until

    wait_until(is_over, what="the end of eleven seconds")

    assert max(ages) <= SIGN_WITHIN_S
    job.ends()


def test_a_log_shows_within_5_s_that_the_job_is_at_work_and_on_which_handoff(
    fleet: Fleet, tmp_path: Path
) -> None:
    job, handoff = slow_job(fleet, "in-a-log"), Handoff(tmp_path)

    with handoff.started("watch", job.job_id, HANDOFF_REDIS_URL=fleet.system.redis_url) as process:
        wait_until(
            lambda: len(SAID.findall(handoff.read("err"))) >= 2, timeout_s=28, what="two signs"
        )
        job.ends()
        assert process.wait(30) == 0

    seconds = [int(one) for one in SAID.findall(handoff.read("err"))]
    assert all(later - earlier <= SIGN_WITHIN_S + 1 for earlier, later in pairwise(seconds)), (
        "whole seconds, rounded"
    )
    assert "so far 1 of 200 turns, 120 tokens" in handoff.read("err")
    assert "no sign of life" not in handoff.read("err")


def test_an_outage_of_redis_loses_and_repeats_no_line(fleet: Fleet, tmp_path: Path) -> None:
    job, handoff = slow_job(fleet, "away"), Handoff(tmp_path)

    with handoff.started("watch", job.job_id, HANDOFF_REDIS_URL=fleet.system.redis_url) as process:
        handoff.wait_for("a (generalist): works")
        kill_redis(fleet.system.processes)
        handoff.wait_for("trying again")
        job.ends()
        assert process.wait(60) == 0

    afterwards = handoff.run("watch", job.job_id, HANDOFF_REDIS_URL=fleet.system.redis_url)
    told = told_of_events(handoff.read("err"))
    assert told == told_of_events(afterwards.stderr)
    assert [line for line in told if line.startswith("b (")] == [
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
        wait_until(lambda: _somebody_waits(fleet), what="somebody waiting for news of the job")
        kill_redis(fleet.system.processes)
        job.ends()
        assert process.wait(60) == 0, handoff.read("err")

    assert handoff.read("out").strip() == fleet.jobs.result(job.job_id).answer


def _somebody_waits(fleet: Fleet) -> bool:
    return any(
        one["cmd"] == "xread" and "b" in one["flags"]
        for one in fleet.jobs.store.connection.redis.client_list()
    )


def test_a_terminal_shows_the_tree_live_with_the_cause_of_each_wait(
    fleet: Fleet, tmp_path: Path
) -> None:
    job, handoff, (ours, theirs) = slow_job(fleet, "on-a-terminal"), Handoff(tmp_path), os.openpty()
    environment = handoff.environment(
        TERM="xterm", COLUMNS="140", LINES="50", HANDOFF_REDIS_URL=fleet.system.redis_url
    )
    process = subprocess.Popen(
        handoff.command("watch", job.job_id),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
    )
    os.close(theirs)
    try:
        shown = read_until(ours, "waits for a")
        assert f"{job.job_id}  running" in shown
        assert "of 200 turns" in shown
        assert "turn 1  thinking" in read_until(ours, "thinking")
        job.ends()
        read_until(ours, "So it is.")
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def told_of_events(said: str) -> list[str]:
    """Return the lines about events, without momentary lines: claims, signs of life, waits and the
    final account.
    """
    of_the_moment = (": works", "at work:", "trying again", "Redis is back", "waits for")
    return [
        line
        for line in said.partition("\n\n")[0].splitlines()
        if not any(words in line for words in of_the_moment)
    ]
