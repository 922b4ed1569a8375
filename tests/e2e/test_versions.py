"""Two versions share the queues. A process leaves messages of another version in the queue. After
a minute, they become dead letters. Other jobs continue.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from handoff_queue.shared.broker.celery_app import declare_queues
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.dead_letters import PATIENCE_S
from handoff_queue.shared.store.fair_queue import ENQUEUE, MEMBER_HEADER, enqueue_arguments
from handoff_queue.shared.types.ids import HandoffId, JobId
from tests import forked_processes
from tests.doubles.jobs import handoff_key
from tests.e2e.a_worker_of_the_next_version import NEXT
from tests.e2e.commands import Handoff
from tests.e2e.fleet import SPECIALIST, Fleet
from tests.running_system import ROOT
from tests.waiting import MAX_WAIT_S, wait_until

pytestmark = pytest.mark.slow

HANDOFF = HandoffId("a.1")


def convert_to_next_version(fleet: Fleet, message: bytes) -> None:
    """Rewrite the waiting message as a message of a version that no process of the fleet knows."""
    changed = json.loads(message)
    changed["headers"]["task"] += NEXT
    assert fleet.redis.lrem(SPECIALIST, 1, message) == 1
    entry, fair = (
        f"{changed['headers'][MEMBER_HEADER]} {changed['properties']['delivery_tag']}",
        keys.FAIR + SPECIALIST,
    )
    assert fleet.redis.zrem(fair, entry) == fleet.redis.hdel(f"{fair}:messages", entry)
    fleet.redis.eval(ENQUEUE.text, *enqueue_arguments(SPECIALIST, changed, is_first=True))


@contextmanager
def a_worker_of_the_next_version(fleet: Fleet) -> Iterator[int]:
    """Start a worker of the next version on the fleet's queue, and yield its process id."""
    app = "tests.e2e.a_worker_of_the_next_version"
    spec = fleet.system.celery_worker("next", app, SPECIALIST, 1)
    before = fleet.announced_workers()
    environment = {**os.environ, **spec.environment}
    with Path(os.devnull).open("wb") as nothing:
        process = forked_processes.start(
            spec.command, environment, ROOT, nothing.fileno(), nothing.fileno()
        )
    try:
        (pid,) = wait_until(
            lambda: fleet.announced_workers() - before, timeout_s=60, expected="the worker"
        )
        yield pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(MAX_WAIT_S)


def unread_since(fleet: Fleet, job_id: JobId) -> int:
    return int(fleet.redis.hget(handoff_key(fleet.jobs.store, job_id, HANDOFF), "unread") or 0)


def test_a_worker_of_the_next_version_takes_its_messages_and_the_job_ends(
    fleet: Fleet,
) -> None:
    with a_worker_of_the_next_version(fleet) as pid:
        held = [fleet.model.hold("busy-next", step) for step in ("x", "y", "z", "w")]
        busy = fleet.submit("busy-next", x="", y="", z="", w="")
        for call in held:
            assert call.arrived.wait(MAX_WAIT_S)
        job_id = fleet.submit("next", a="", b="a")
        (message,) = fleet.queued(job_id, 1)
        convert_to_next_version(fleet, message)
        (free,) = [
            call
            for call, step in zip(held, ("x", "y", "z", "w"), strict=True)
            if fleet.pid_of(busy, f"{step}.1") == pid
        ]
        free.release.set()

        (result,) = wait_until(
            lambda: [event for event in fleet.finished(job_id) if event.handoff_id == HANDOFF],
            expected="its result",
        )

        assert result.worker.endswith(f":{pid}")
        for call in held:
            call.release.set()
        fleet.wait_for_success(job_id)
        fleet.wait_for_success(busy)


def test_a_message_of_an_unknown_version_is_republished_and_other_jobs_continue(
    fleet: Fleet,
) -> None:
    busy, held = fleet.occupy("busy-left")
    job_id = fleet.submit("left", a="")
    (message,) = fleet.queued(job_id, 1)
    convert_to_next_version(fleet, message)
    for call in held:
        call.release.set()

    wait_until(lambda: unread_since(fleet, job_id), expected="a worker that leaves it")

    assert all(job_id not in letter.body for letter in fleet.jobs.store.dead_letters.list_newest())
    fleet.wait_for_success(busy)
    fleet.wait_for_success(job_id)
    assert fleet.model.calls["left", "a", 1] == 1


def test_a_message_untaken_for_a_minute_is_a_dead_letter_that_a_command_retries(
    fleet: Fleet, tmp_path: Path
) -> None:
    command = Handoff(tmp_path)

    def dead(*arguments: str) -> str:
        completed = command.run("dead", *arguments, HANDOFF_REDIS_URL=fleet.system.admin_url)
        assert completed.returncode == 0, completed.stderr
        return completed.stdout

    busy, held = fleet.occupy("busy-dead")
    job_id = fleet.submit("dead", a="")
    (message,) = fleet.queued(job_id, 1)
    long_ago_ms = int((fleet.jobs.store.connection.now() - PATIENCE_S - 1) * 1000)
    fleet.redis.hset(handoff_key(fleet.jobs.store, job_id, HANDOFF), "unread", long_ago_ms)
    convert_to_next_version(fleet, message)
    app = fleet.admin._dispatcher._app
    declare_queues(app, [SPECIALIST])
    app.send_task(f"specialist.{SPECIALIST}", args=("{",), queue=SPECIALIST)
    for call in held:
        call.release.set()
    wait_until(
        lambda: (
            {job_id in letter.body for letter in fleet.jobs.store.dead_letters.list_newest(2)}
            == {True, False}
        ),
        expected="both letters",
    )
    newest = json.loads(dead("list", "--json", "-n", "2"))
    (own_letter,), (garbage,) = (
        [letter["id"] for letter in newest if (job_id in letter["body"]) is is_own]
        for is_own in (True, False)
    )

    assert NEXT in dead("show", own_letter)
    assert "is back in its queue" in dead("requeue", own_letter)
    fleet.wait_for_success(job_id)
    assert "1 dead letter dropped" in dead("drop", garbage)
    assert not {own_letter, garbage} & {
        letter.id for letter in fleet.jobs.store.dead_letters.list_newest()
    }
    fleet.wait_for_success(busy)
