"""Two versions share the queues. A process leaves unreadable messages to the other version, and in
the end to a person. Other jobs go on.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from handoff_queue.shared.broker.celery_app import declare_queues
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.dead_letters import PATIENCE_S
from handoff_queue.shared.store.fair_queue import ENQUEUE, FOR, enqueue_order
from handoff_queue.shared.types.ids import HandoffId, JobId
from tests.e2e.a_worker_of_the_next_version import NEXT
from tests.e2e.commands import Handoff
from tests.e2e.fleet import SPECIALIST, Fleet
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

HANDOFF = HandoffId("a.1")


def becomes_the_next_versions(fleet: Fleet, message: bytes) -> None:
    """Rewrite the waiting message as a message of a version that no process of the fleet knows."""
    changed = json.loads(message)
    changed["headers"]["task"] += NEXT
    assert fleet.redis.lrem(SPECIALIST, 1, message) == 1
    entry, fair = (
        f"{changed['headers'][FOR]} {changed['properties']['delivery_tag']}",
        keys.FAIR + SPECIALIST,
    )
    assert fleet.redis.zrem(fair, entry) == fleet.redis.hdel(f"{fair}:messages", entry)
    fleet.redis.eval(ENQUEUE.text, *enqueue_order(SPECIALIST, [changed], is_first=True))


@contextmanager
def a_worker_of_the_next_version(fleet: Fleet) -> Iterator[int]:
    """Start a worker of the next version on the fleet's queue, and yield its process id."""
    arguments = (
        "-A",
        "tests.e2e.a_worker_of_the_next_version",
        "worker",
        "-n",
        "next@%h",
        "-Q",
        SPECIALIST,
        "-c",
        "1",
    )
    spec, before = fleet.system.celery("next", *arguments), fleet.announced()
    quiet, environment = subprocess.DEVNULL, {**os.environ, **spec.environment}
    with subprocess.Popen(spec.command, env=environment, stdout=quiet, stderr=quiet) as process:
        try:
            wait_until(lambda: fleet.announced() - before, timeout_s=60, what="the worker")
            yield process.pid
        finally:
            process.terminate()
            process.wait(30)


def unread_since(fleet: Fleet, job_id: JobId) -> int:
    return int(fleet.redis.hget(keys.handoff(job_id, HANDOFF), "unread") or 0)


def test_a_message_of_the_next_version_is_taken_by_the_worker_that_knows_it_and_the_job_ends(
    fleet: Fleet,
) -> None:
    with a_worker_of_the_next_version(fleet) as pid:
        held = [fleet.model.hold("busy-next", step) for step in ("x", "y", "z", "w")]
        busy = fleet.submit("busy-next", x="", y="", z="", w="")
        for one in held:
            assert one.arrived.wait(30)
        job_id = fleet.submit("next", a="", b="a")
        (message,) = fleet.queued(job_id, 1)
        becomes_the_next_versions(fleet, message)
        (free,) = [
            one
            for one, step in zip(held, ("x", "y", "z", "w"), strict=True)
            if fleet.pid_of(busy, f"{step}.1") == pid
        ]
        free.go.set()

        (result,) = wait_until(
            lambda: [one for one in fleet.finished(job_id) if one.handoff_id == HANDOFF],
            what="its result",
        )

        assert result.worker.endswith(f":{pid}")
        for one in held:
            one.go.set()
        fleet.ends_well(job_id)
        fleet.ends_well(busy)


def test_a_message_of_an_unknown_version_is_republished_while_other_jobs_go_on(
    fleet: Fleet,
) -> None:
    busy, held = fleet.occupy("busy-left")
    job_id = fleet.submit("left", a="")
    (message,) = fleet.queued(job_id, 1)
    becomes_the_next_versions(fleet, message)
    for one in held:
        one.go.set()

    wait_until(lambda: unread_since(fleet, job_id), what="a worker that leaves it")

    assert all(job_id not in letter.body for letter in fleet.jobs.store.dead_letters.newest())
    fleet.ends_well(busy)
    fleet.ends_well(job_id)
    assert fleet.model.calls["left", "a", 1] == 1


def test_a_message_untaken_for_a_minute_is_a_dead_letter_that_a_command_retries(
    fleet: Fleet, tmp_path: Path
) -> None:
    command = Handoff(tmp_path)

    def dead(*arguments: str) -> str:
        done = command.run("dead", *arguments, HANDOFF_REDIS_URL=fleet.system.redis_url)
        assert done.returncode == 0, done.stderr
        return done.stdout

    busy, held = fleet.occupy("busy-dead")
    job_id = fleet.submit("dead", a="")
    (message,) = fleet.queued(job_id, 1)
    long_ago_ms = int((fleet.jobs.store.connection.now() - PATIENCE_S - 1) * 1000)
    fleet.redis.hset(keys.handoff(job_id, HANDOFF), "unread", long_ago_ms)
    becomes_the_next_versions(fleet, message)
    app = fleet.jobs._dispatcher._app
    declare_queues(app, [SPECIALIST])
    app.send_task(f"specialist.{SPECIALIST}", args=("{",), queue=SPECIALIST)
    for one in held:
        one.go.set()
    wait_until(
        lambda: (
            {job_id in one.body for one in fleet.jobs.store.dead_letters.newest(2)} == {True, False}
        ),
        what="both letters",
    )
    newest = json.loads(dead("list", "--json", "-n", "2"))
    (ours,), (garbage,) = (
        [one["id"] for one in newest if (job_id in one["body"]) is known] for known in (True, False)
    )

    assert NEXT in dead("show", ours)
    assert "is back in its queue" in dead("requeue", ours)
    fleet.ends_well(job_id)
    assert "1 dead letter dropped" in dead("drop", garbage)
    assert not {ours, garbage} & {letter.id for letter in fleet.jobs.store.dead_letters.newest()}
    fleet.ends_well(busy)
