"""The Redis users of an installation with a prefix do the same work as without a prefix."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
from celery.events.receiver import EventReceiver
from redis.exceptions import NoPermissionError

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.types.audit import AuditAction
from handoff_queue.shared.types.events import HandoffFinished
from tests.doubles.jobs import a_job, finish, granted_claim, issue
from tests.hostile.redis_with_users import Server, redis_with_users

pytestmark = pytest.mark.slow

OTHER_CHANNELS = ("/0.handoff.control.pidbox", "/0.search:handoff.control.pidbox")
"""Channels of installations with another prefix."""


@pytest.fixture(scope="module")
def prefixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with redis_with_users(tmp_path_factory.mktemp("redis"), "billing") as started:
        yield started


def url_of(server: Server, user: str) -> str:
    return server.users.build_url(user, server.address)


def test_flower_sees_the_events_of_a_worker(prefixed: Server) -> None:
    worker = make_app("worker", url_of(prefixed, "worker-analyst"), Settings(), ["analyst"])
    flower = make_app("flower", url_of(prefixed, "flower"), Settings(), ["analyst"])
    seen: list[str] = []
    with flower.connection_for_read() as reader, worker.connection_for_write() as writer:
        receiver = EventReceiver(
            reader, handlers={"*": lambda event: seen.append(event["type"])}, app=flower
        )
        with (
            worker.events.Dispatcher(writer, hostname="w@h") as dispatcher,
            receiver.consumer_context() as (connection, _, _),
        ):
            while not seen:  # the first drain subscribes
                dispatcher.send("worker-heartbeat")
                with suppress(TimeoutError):
                    connection.drain_events(timeout=1)
    worker.close()
    flower.close()

    assert "worker-heartbeat" in seen


@pytest.mark.parametrize("user", ["supervisor", "client", "console", "flower", "worker-analyst"])
def test_a_process_sends_control_commands_to_its_own_installation_only(
    prefixed: Server, user: str
) -> None:
    app = make_app("test", url_of(prefixed, user), Settings(), ["analyst"])

    assert app.control.ping(timeout=0.1) == []

    app.close()
    with prefixed.connected_as(user) as connection:
        for channel in OTHER_CHANNELS:
            with pytest.raises(NoPermissionError):
                connection.publish(channel, "x")


def test_refused_commands_are_in_the_audit(prefixed: Server) -> None:
    with prefixed.connected_as("worker-analyst") as attacker, pytest.raises(NoPermissionError):
        attacker.get(f"billing:{keys.TOKENS}")
    with prefixed.store("supervisor") as supervisor, prefixed.store("console") as console:
        assert supervisor.refusals.copy_commands() > 0

        refused = [
            entry for entry in console.audit.list_newest(99) if "tokens" in (entry.detail or "")
        ]

    assert [entry.action for entry in refused] == [AuditAction.REFUSE]


def test_a_job_runs_with_the_user_of_each_process(prefixed: Server) -> None:
    with (
        prefixed.store("supervisor") as supervisor,
        prefixed.store("worker-analyst") as worker,
        prefixed.store("client") as client,
    ):
        job_id = a_job(client)
        issue(supervisor, job_id, "find.1", role="analyst")
        finish(granted_claim(worker, job_id, "find.1"))
        supervisor.due_work.sweep()

        assert isinstance(client.journal.read(job_id)[-1].event, HandoffFinished)


def test_the_users_of_one_installation_write_no_key_of_another(server: Server) -> None:
    """The name of this bucket ends like a reply queue, and the prefix is a hexadecimal digit."""
    key = f"b:{keys.bucket('x.reply.handoff.control.pidbox')}"

    with server.connected_as("worker-analyst") as attacker, pytest.raises(NoPermissionError):
        attacker.lpush(key, "x")
