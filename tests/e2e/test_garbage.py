"""Invalid messages in a queue stop no process. They become dead letters, and the next job
completes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from handoff_queue.chaos.leaks import UNACKED, UNACKED_INDEX
from handoff_queue.shared.store.dead_letters import MAX_BODY_CHARS, DeadLetter
from handoff_queue.shared.types.names import ADVANCE, SUPERVISOR_QUEUE, get_task
from tests.e2e.fleet import SPECIALIST, Fleet
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def no_letters(fleet: Fleet) -> Iterator[None]:
    """Delete the dead letters before and after each test."""
    fleet.admin.store.dead_letters.drop_all()
    yield
    fleet.admin.store.dead_letters.drop_all()


UNKNOWN_JOB = "j-000000000000"
TASKS = {SPECIALIST: (get_task(SPECIALIST), "no handoff"), SUPERVISOR_QUEUE: (ADVANCE, UNKNOWN_JOB)}
"""Task of each queue, and an argument that it rejects."""


def celery_message(
    queue: str, payload: object = None, *, headers: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """Return a message in Celery's format with these changes of its payload, headers and fields."""
    task, argument = TASKS[queue]
    body = json.dumps([[argument], {}, {}] if payload is None else payload).encode()
    return {
        "body": base64.b64encode(body).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {"lang": "py", "task": task, "id": "i", **(headers or {})},
        "properties": {
            "delivery_tag": "t",
            "body_encoding": "base64",
            "delivery_info": {"exchange": "", "routing_key": queue},
        },
        **more,
    }


def invalid_messages(queue: str) -> dict[str, bytes]:
    """Return invalid messages by a part of the reason in their dead letter."""
    task = TASKS[queue][0]
    pickled = base64.b64encode(b"cos\nsystem\n(S'exit 1'\ntR.").decode()
    values = {
        "a message must be a JSON object": [1],
        "must have properties": {},
        "a delivery_tag": celery_message(
            queue,
            properties={
                "delivery_tag": {},
                "delivery_info": {"exchange": "", "routing_key": queue},
            },
        ),
        "must have headers": celery_message(queue) | {"headers": 7},
        "must not be compressed": celery_message(
            queue, headers={"compression": "application/x-gzip"}
        ),
        "not base64": celery_message(queue, body="a"),
        "encoding of its body": celery_message(
            queue, properties={**celery_message(queue)["properties"], "body_encoding": "rot13"}
        ),
        "its headers must name": celery_message(queue) | {"headers": {}},
        "must name its task": celery_message(queue, headers={"task": ["a"]}),
        "task and its id": celery_message(queue, headers={"id": None}),
        "there is no task nonsense": celery_message(queue, headers={"task": "nonsense"}),
        "there is no task celery.map": celery_message(queue, headers={"task": "celery.map"}),
        "x-python-serialize": celery_message(queue, body=pickled)
        | {"content-type": "application/x-python-serialize"},
        "in 'zlib_codec'": celery_message(queue) | {"content-encoding": "zlib_codec"},
        "not allowed: eta": celery_message(queue, headers={"eta": "2999-01-01T00:00:00"}),
        "not allowed: eta, expires": celery_message(queue, headers={"eta": [], "expires": {}}),
        "body has half a character (a lone surrogate)": celery_message(
            queue,
            body='[["\ud83d"], {}, {}]',
            properties={**celery_message(queue)["properties"], "body_encoding": None},
        ),
        "not allowed: expires": celery_message(queue, headers={"expires": "1999-01-01T00:00:00"}),
        "not allowed: stamped_headers": celery_message(queue, headers={"stamped_headers": 5}),
        "not allowed: group, retries": celery_message(queue, headers={"group": {}, "retries": "x"}),
        "named arguments": celery_message(queue, [1]),
        "follow-up tasks are not allowed": celery_message(queue, [[], {}, {"callbacks": 7}]),
        "does not take": celery_message(queue, [[], {"other": 1}, {}]),
        "kombu cannot read its body as JSON": celery_message(
            queue, body=base64.b64encode(b"\xff{").decode()
        ),
    }
    raw = {
        "JSON cannot be read (JSONDecodeError)": b"not json",
        "(UnicodeDecodeError)": b"\xff\xfe\x00",
        "(RecursionError)": b"[" * 100_000,
        f"{20_000_000:,} characters": b"x" * 20_000_000,
    }
    assert task in str(values["not base64"])
    return {**raw, **{reason: json.dumps(value).encode() for reason, value in values.items()}}


def unacknowledged(fleet: Fleet) -> set[bytes]:
    """Return the unacknowledged messages. They include messages of earlier killed processes."""
    return {*fleet.redis.hkeys(UNACKED), *fleet.redis.zrange(UNACKED_INDEX, 0, -1)}


@pytest.mark.parametrize("queue", [SPECIALIST, SUPERVISOR_QUEUE])
def test_invalid_messages_become_dead_letters_and_no_process_ends(fleet: Fleet, queue: str) -> None:
    messages, unacknowledged_before = invalid_messages(queue), unacknowledged(fleet)
    processes = fleet.system.processes.get_pids()
    for message in messages.values():
        fleet.redis.lpush(queue, message)

    def new_letters() -> list[DeadLetter]:
        newest = fleet.jobs.store.dead_letters.list_newest()
        return newest if len(newest) >= len(messages) else []

    letters = wait_until(new_letters, expected="a dead letter for each")

    assert [
        reason for reason in messages if not any(reason in letter.reason for letter in letters)
    ] == []
    assert {letter.queue for letter in letters} == {queue}
    assert max(len(letter.body) for letter in letters) == MAX_BODY_CHARS
    assert "not json" in {letter.body for letter in letters}
    wait_until(
        lambda: not fleet.redis.exists(queue) and unacknowledged(fleet) <= unacknowledged_before,
        expected="the acknowledgement of every message",
    )
    fleet.wait_for_success(fleet.submit(f"after-garbage-{queue}", a="", b="a"))
    assert fleet.system.processes.get_pids() == processes


@pytest.mark.parametrize("queue", [SPECIALIST, SUPERVISOR_QUEUE])
def test_invalid_headers_and_callbacks_end_no_process(fleet: Fleet, queue: str) -> None:
    """The message is valid for a task. Only the task can check these fields."""
    unacknowledged_before = unacknowledged(fleet)
    processes = fleet.system.processes.get_pids()
    headers: list[dict[str, Any]] = [
        {"redelivered": []},
        {"is_eager": 1},
        {"args": 7},
        {"chord": 7},
        {"hostname": {}},
        {"ignore_result": "x"},
    ]
    callbacks = [
        {"chord": {"task": "nonsense"}},
        {"chord": {}},
        {"chord": {"args": 7}},
        {"delivery_info": 7},
    ]
    _, argument = TASKS[queue]
    messages = [celery_message(queue, headers=message) for message in headers] + [
        celery_message(queue, [[argument], {}, message]) for message in callbacks
    ]
    messages += [
        celery_message(queue, [["\ud800"], {}, {}]),
        celery_message(queue, [[{"a": ["\ud800"]}], {}, {}]),
    ]
    for number, message in enumerate(messages):
        message["properties"]["delivery_tag"] = f"odd-{number}"
        fleet.redis.lpush(queue, json.dumps(message))

    wait_until(
        lambda: not fleet.redis.exists(queue) and unacknowledged(fleet) <= unacknowledged_before,
        expected="the acknowledgement of every message",
    )
    fleet.wait_for_success(fleet.submit(f"after-oddities-{queue}", a=""))
    assert fleet.system.processes.get_pids() == processes


def test_an_invalid_broadcast_message_is_dropped(fleet: Fleet) -> None:
    processes = fleet.system.processes.get_pids()
    for channel in fleet.redis.pubsub_channels("*pidbox*"):
        fleet.redis.publish(channel, b"[1]")
        fleet.redis.publish(channel, b"{}")
        fleet.redis.publish(channel, b'{"__type__": "decimal", "__value__": "x"}')
        fleet.redis.publish(channel, b"[" * 100_000)

    fleet.wait_for_success(fleet.submit("after-noise", a=""))
    assert fleet.system.processes.get_pids() == processes
