"""Every key of a fleet has the fleet's prefix, and no other key is read or written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.broker.message_publisher import TaskMessage, publish, publish_each
from handoff_queue.shared.settings.redis_url import read_address
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.fair_queue import MEMBER_HEADER
from handoff_queue.shared.store.redis.prefix import NO_KEY, with_prefix
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.types.ids import create_job_id
from handoff_queue.shared.types.presence import Announcement
from tests.doubles.handoffs import a_spec
from tests.doubles.jobs import a_job, finish, granted_claim, issue, model_reply
from tests.doubles.sweep_states import QUEUE


@pytest.fixture
def url(redis_url: str) -> str:
    return f"{redis_url}?prefix=billing"


@pytest.fixture
def server(redis_url: str) -> Iterator[Any]:
    with redis.Redis.from_url(redis_url) as client:
        yield client


def use_all_parts(store: Store) -> None:
    """Call methods of every part of the store."""
    job_id = a_job(store)
    issue(store, job_id, "a.1")
    claim = granted_claim(store, job_id, "a.1")
    claim.checkpoint(model_reply())
    claim.renew()
    finish(claim)
    store.presence.announce(
        Announcement(worker="w", specialists=(a_spec(),), slots=1, model="offline")
    )
    store.presence.announce_supervisor("s")
    store.dead_letters.add("researcher", "garbage", "{")
    store.due_work.sweep()
    assert store.journal.follow(job_id, 0, 0.1)
    assert store.journal.follow_each({job_id: 0}, 0.1)[job_id]
    assert store.presence.read_announcements()
    assert store.dead_letters.list_newest()


def test_every_key_of_the_store_has_the_prefix(url: str, server: Any) -> None:
    store = open_store(url, Settings(lease_s=3_600))

    use_all_parts(store)

    names = server.keys()
    assert names
    assert [key for key in names if not key.startswith(b"billing:handoff:")] == []
    store.connection.close()


def test_every_key_of_the_queues_has_the_prefix(url: str, server: Any) -> None:
    app = make_app("test", url, Settings(), [QUEUE])
    jobs = [f"{create_job_id()}/a.1" for _ in range(9)]
    messages = [TaskMessage("specialist.x", job, QUEUE, (), "()", job) for job in jobs]
    app.send_task("specialist.x", queue=QUEUE, ignore_result=True)
    publish(app, messages[0])
    publish_each(app, messages[1:])

    keys = server.keys()
    names = [key.decode() for key in keys]
    assert server.llen(f"billing:{QUEUE}") == 10
    assert [name for name in names if not name.startswith("billing:")] == []

    delivered = []
    with app.connection_for_read() as connection, connection.SimpleQueue(QUEUE) as queue:
        queue.get(timeout=5).requeue()
        for _ in range(10):
            message = queue.get(timeout=5)
            delivered.append(message.headers.get(MEMBER_HEADER))
            message.ack()
    assert sorted(filter(None, delivered)) == sorted(jobs)
    assert app.control.purge() == 0
    app.close()


def test_fleets_with_different_prefixes_do_not_see_each_other(redis_url: str, url: str) -> None:
    first, second = (
        open_store(fleet_url, Settings()) for fleet_url in (url, f"{redis_url}?prefix=search")
    )
    plain = open_store(redis_url, Settings())

    use_all_parts(first)

    for other in (second, plain):
        assert other.jobs.list_newest(9) == []
        assert other.presence.read_announcements() == []
        other.connection.close()
    first.connection.close()


def test_control_messages_and_events_have_separate_exchanges() -> None:
    names = [
        make_app("test", f"redis://h{query}", Settings(), []).conf[name]
        for query in ("", "?prefix=a", "?prefix=b")
        for name in ("control_exchange", "event_exchange")
    ]

    assert len({*names, "celery", "celeryev"}) == 8


@pytest.mark.parametrize(
    "command",
    [
        ("GET", "a"),
        ("HSET", "a", "f", "v"),
        ("DEL", "a", "b"),
        ("MGET", "a", "b"),
        ("SET", "a", "1", "EX", 5),
        ("ZADD", "a", "1", "m"),
        ("XRANGE", "a", "-", "+"),
        ("XREAD", "COUNT", 1, "BLOCK", 1, "STREAMS", "a", "b", "0-0", "1-0"),
        ("XREAD", b"COUNT", b"1", b"STREAMS", "a", "0-0"),
    ],
)
def test_redis_agrees_which_arguments_are_keys(server: Any, command: tuple[Any, ...]) -> None:
    key_names = server.execute_command("COMMAND GETKEYS", *with_prefix("p:", command))

    assert set(key_names) <= {"p:a", "p:b"}
    assert len(key_names) == len(server.execute_command("COMMAND GETKEYS", *command))


@pytest.mark.parametrize("name", sorted(NO_KEY - {"EVALSHA"}))
def test_redis_agrees_which_commands_have_no_key(server: Any, name: str) -> None:
    info = server.execute_command("COMMAND", "INFO", name)
    first_key = info[name.lower()]["first_key_pos"]

    assert first_key == 0
    assert with_prefix("p:", (name, "x")) == (name, "x")


@pytest.mark.parametrize("prefix", ["", "a+b", "a'b", "{a}", "a%s", "x" * 65])
def test_a_prefix_that_cannot_be_used_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="prefix"):
        read_address(f"redis://h?prefix={prefix.replace('%', '%25')}")
