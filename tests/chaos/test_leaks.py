"""The check after a chaos run finds each kind of leftover in Redis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from handoff_queue.chaos.leaks import find_leaks

EXPIRY_S = 60


@pytest.fixture
def client(redis_url: str) -> Iterator[Any]:
    with redis.Redis.from_url(redis_url) as connection:
        yield connection


def leftovers(client: Any, *, was_struck: bool = False) -> list[str]:
    return find_leaks(client, ("writer", "supervisor"), was_struck=was_struck)


@pytest.mark.parametrize(
    "key", ["handoff:{j-1}:progress", "handoff:day:20410", "handoff:day:20410:default"]
)
def test_a_remaining_reservation_is_found_in_the_accounts_of_the_job_and_the_day(
    client: Any, key: str
) -> None:
    client.hset(
        key, mapping={"turns": 3, "reserved_turns": 0, "reserved_tokens": 500, "reserved_usd": 0}
    )
    client.expire(key, EXPIRY_S)

    assert leftovers(client) == [f"{key}: reserved [0, 500, 0]"]

    client.hset(key, "reserved_tokens", 0)
    assert leftovers(client) == []


def test_a_handoffs_own_reservation_is_found(client: Any) -> None:
    client.hset("handoff:{j-1}:h:a:a.1", mapping={"state": "done", "r_turns": 1})
    client.expire("handoff:{j-1}:h:a:a.1", EXPIRY_S)

    assert leftovers(client) == ["handoff:{j-1}:h:a:a.1: has set aside ['1']"]


def test_a_message_in_a_queue_is_found(client: Any) -> None:
    client.rpush("supervisor", "{}")

    assert leftovers(client, was_struck=True) == ["supervisor: 1 messages"]


def test_an_unacknowledged_message_is_found_if_no_process_was_struck(client: Any) -> None:
    client.hset("unacked", "tag", "[]")
    client.zadd("unacked_index", {"tag": 1})

    assert leftovers(client) == ["unacked: 1 messages"]
    assert leftovers(client, was_struck=True) == [], "Celery delivers it again"


def test_a_message_that_celery_never_redelivers_is_found_even_after_a_strike(
    client: Any,
) -> None:
    client.hset("unacked", "tag", "[]")

    assert leftovers(client, was_struck=True) == [
        "unacked: 1 messages that never come back, 0 that come back as nothing"
    ]


def test_a_shared_run_that_is_left_is_found(client: Any) -> None:
    key = "handoff:shared_run:clerk:0"
    client.zadd(key, {"j-0123456789ab/a.1": 0})
    client.expire(key, EXPIRY_S)

    assert leftovers(client) == [f"{key}: of handoffs that have ended"]
