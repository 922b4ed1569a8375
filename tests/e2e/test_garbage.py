"""Arbitrary bytes in a queue stop no process. The bytes become a dead letter, and the next job
completes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from handoff_queue.chaos.leaks import UNACKED, UNACKED_INDEX
from handoff_queue.shared.store.dead_letters import MOST_BODY_CHARS, DeadLetter
from handoff_queue.shared.types.names import ADVANCE, SUPERVISOR_QUEUE, task_of
from tests.e2e.fleet import SPECIALIST, Fleet
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def no_letters(fleet: Fleet) -> Iterator[None]:
    """Neither from before nor for later tests."""
    fleet.jobs.store.dead_letters.drop_all()
    yield
    fleet.jobs.store.dead_letters.drop_all()


GONE = "j-000000000000"
TASKS = {SPECIALIST: (task_of(SPECIALIST), "no handoff"), SUPERVISOR_QUEUE: (ADVANCE, GONE)}
"""A task of each queue, and an argument for it."""


def frame(
    queue: str, payload: object = None, *, headers: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """Return a message in Celery's format with these changes."""
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


def garbage(queue: str) -> dict[str, bytes]:
    """Return invalid messages by the reason in their dead letter."""
    task = TASKS[queue][0]
    pickled = base64.b64encode(b"cos\nsystem\n(S'exit 1'\ntR.").decode()
    values = {
        "a message is a JSON object": [1],
        "has properties": {},
        "a delivery_tag": frame(
            queue,
            properties={
                "delivery_tag": {},
                "delivery_info": {"exchange": "", "routing_key": queue},
            },
        ),
        "has headers": frame(queue) | {"headers": 7},
        "not compressed": frame(queue, headers={"compression": "application/x-gzip"}),
        "not base64": frame(queue, body="a"),
        "encoding of its body": frame(
            queue, properties={**frame(queue)["properties"], "body_encoding": "rot13"}
        ),
        "do not say which task": frame(queue) | {"headers": {}},
        "which task it is for": frame(queue, headers={"task": ["a"]}),
        "and its id": frame(queue, headers={"id": None}),
        "there is no task nonsense": frame(queue, headers={"task": "nonsense"}),
        "there is no task celery.map": frame(queue, headers={"task": "celery.map"}),
        "x-python-serialize": frame(queue, body=pickled)
        | {"content-type": "application/x-python-serialize"},
        "in 'zlib_codec'": frame(queue) | {"content-encoding": "zlib_codec"},
        "not allowed: eta": frame(queue, headers={"eta": "2999-01-01T00:00:00"}),
        "not allowed: eta, expires": frame(queue, headers={"eta": [], "expires": {}}),
        "body holds half of a character": frame(
            queue,
            body='[["\ud83d"], {}, {}]',
            properties={**frame(queue)["properties"], "body_encoding": None},
        ),
        "not allowed: expires": frame(queue, headers={"expires": "1999-01-01T00:00:00"}),
        "not allowed: stamped_headers": frame(queue, headers={"stamped_headers": 5}),
        "not allowed: group, retries": frame(queue, headers={"group": {}, "retries": "x"}),
        "named arguments": frame(queue, [1]),
        "follow-up tasks are not allowed": frame(queue, [[], {}, {"callbacks": 7}]),
        "does not take": frame(queue, [[], {"other": 1}, {}]),
        "its body is not JSON": frame(queue, body=base64.b64encode(b"\xff{").decode()),
    }
    raw = {
        "not JSON that is read (JSONDecodeError)": b"not json",
        "(UnicodeDecodeError)": b"\xff\xfe\x00",
        "(RecursionError)": b"[" * 100_000,
        f"{20_000_000:,} characters": b"x" * 20_000_000,
    }
    assert task in str(values["not base64"])
    return {**raw, **{why: json.dumps(value).encode() for why, value in values.items()}}


def out(fleet: Fleet) -> set[bytes]:
    """Return the unacknowledged messages. Messages of killed processes stay unacknowledged for
    hours.
    """
    return {*fleet.redis.hkeys(UNACKED), *fleet.redis.zrange(UNACKED_INDEX, 0, -1)}


@pytest.mark.parametrize("queue", [SPECIALIST, SUPERVISOR_QUEUE])
def test_garbage_becomes_dead_letters_and_no_process_ends(fleet: Fleet, queue: str) -> None:
    ours, out_before = garbage(queue), out(fleet)
    processes = fleet.system.processes.pids()
    for one in ours.values():
        fleet.redis.lpush(queue, one)

    def come() -> list[DeadLetter]:
        found = fleet.jobs.store.dead_letters.newest()
        return found if len(found) >= len(ours) else []

    letters = wait_until(come, what="a dead letter for each")

    assert [why for why in ours if not any(why in letter.reason for letter in letters)] == []
    assert {letter.queue for letter in letters} == {queue}
    assert max(len(letter.body) for letter in letters) == MOST_BODY_CHARS
    assert "not json" in {letter.body for letter in letters}
    wait_until(
        lambda: not fleet.redis.exists(queue) and out(fleet) <= out_before,
        what="nothing that is out",
    )
    fleet.ends_well(fleet.submit(f"after-garbage-{queue}", a="", b="a"))
    assert fleet.system.processes.pids() == processes


@pytest.mark.parametrize("queue", [SPECIALIST, SUPERVISOR_QUEUE])
def test_odd_headers_and_callbacks_of_a_stranger_end_no_process(fleet: Fleet, queue: str) -> None:
    """The message is valid for a task. Only the task can check these fields."""
    out_before = out(fleet)
    processes = fleet.system.processes.pids()
    odd: list[dict[str, Any]] = [
        {"redelivered": []},
        {"is_eager": 1},
        {"args": 7},
        {"chord": 7},
        {"hostname": {}},
        {"ignore_result": "x"},
    ]
    embeds = [
        {"chord": {"task": "nonsense"}},
        {"chord": {}},
        {"chord": {"args": 7}},
        {"delivery_info": 7},
    ]
    _, argument = TASKS[queue]
    strange = [frame(queue, headers=one) for one in odd] + [
        frame(queue, [[argument], {}, one]) for one in embeds
    ]
    strange += [frame(queue, [["\ud800"], {}, {}]), frame(queue, [[{"a": ["\ud800"]}], {}, {}])]
    for number, one in enumerate(strange):
        one["properties"]["delivery_tag"] = f"odd-{number}"
        fleet.redis.lpush(queue, json.dumps(one))

    wait_until(
        lambda: not fleet.redis.exists(queue) and out(fleet) <= out_before,
        what="nothing that is out",
    )
    fleet.ends_well(fleet.submit(f"after-oddities-{queue}", a=""))
    assert fleet.system.processes.pids() == processes


def test_an_invalid_broadcast_message_is_dropped(fleet: Fleet) -> None:
    processes = fleet.system.processes.pids()
    for channel in fleet.redis.pubsub_channels("*pidbox*"):
        fleet.redis.publish(channel, b"[1]")
        fleet.redis.publish(channel, b"{}")
        fleet.redis.publish(channel, b'{"__type__": "decimal", "__value__": "x"}')
        fleet.redis.publish(channel, b"[" * 100_000)

    fleet.ends_well(fleet.submit("after-noise", a=""))
    assert fleet.system.processes.pids() == processes
