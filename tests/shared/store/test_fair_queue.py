"""The fair order determines the next message and its cost, also after crashes and with
unordered consumers.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import count
from statistics import fmean
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.fair_queue import (
    ALONE_SUFFIX,
    DEQUEUE,
    ENQUEUE,
    FIRST_HEADER,
    MEMBER_HEADER,
    TAKE,
    build_dequeue_arguments,
    enqueue_arguments,
    take_arguments,
)
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import Priority
from tests.doubles.sweep_states import QUEUE

TENANTS = ("ann", "bob", "cyd")
BATCH, INTERACTIVE = Priority.BATCH, Priority.INTERACTIVE


class Queue:
    """A queue in Redis, used only through the scripts."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self._numbers = count()

    def put(
        self, tenant: str = "ann", priority: Priority = INTERACTIVE, *, is_first: bool = False
    ) -> str:
        """Publish a message of a job of this tenant, and return its tag."""
        job_id, tag = JobId(f"j-{tenant}{priority}"), f"{tenant}-{priority}-{next(self._numbers)}"
        self.client.hset(keys.job(job_id), mapping={"tenant": tenant, "priority": priority.value})
        self.client.expire(keys.job(job_id), 600)
        message = message_for(f"{job_id}/a.1", tag)
        message["headers"] |= {FIRST_HEADER: True} if is_first else {}
        self.client.eval(ENQUEUE.text, *enqueue_arguments(QUEUE, message, is_first=is_first))
        return tag

    def take(self) -> str:
        """Pop an element as a worker does, and return the tag of the message that the worker
        gets.
        """
        return self._taken_for(self.client.rpop(QUEUE))

    def take_at_once(self, most: int) -> list[str]:
        """Pop and take messages in one step, and return their tags."""
        queue, messages, element, left = self.client.eval(TAKE.text, *take_arguments({QUEUE: most}))
        assert (queue.decode(), left) == (QUEUE, self.client.llen(QUEUE))
        return [
            *(tag_of(text) for text in messages),
            *([self._taken_for(element)] if element else []),
        ]

    def _taken_for(self, element: bytes) -> str:
        if element.endswith(ALONE_SUFFIX):
            return tag_of(element)
        return tag_of(
            self.client.eval(DEQUEUE.text, *build_dequeue_arguments(QUEUE, json.loads(element)))
            or element
        )


def tag_of(message: bytes) -> str:
    return str(json.loads(message)["properties"]["delivery_tag"])


def message_for(member: str, tag: str) -> dict[str, Any]:
    info = {"exchange": "", "routing_key": QUEUE}
    return {
        "body": "",
        "headers": {MEMBER_HEADER: member},
        "properties": {"delivery_tag": tag, "delivery_info": info},
    }


@pytest.fixture
def queue(redis_url: str) -> Iterator[Queue]:
    with redis.Redis.from_url(redis_url) as client:
        yield Queue(client)


class Model:
    """Start-time fair queueing as in its paper, with one difference: the virtual time is the
    start tag of the first waiting message. A class keeps its tags while it has messages.
    """

    def __init__(self) -> None:
        self.start: dict[str, tuple[int, int]] = {}
        self.next: dict[Priority, dict[str, int]] = defaultdict(dict)

    def put(self, tag: str, tenant: str, priority: Priority, *, is_first: bool) -> None:
        rank = list(Priority).index(priority)
        if is_first:
            self.start[tag] = (rank, 0)
            return
        virtual_time = min(
            (start for owner, start in self.start.values() if owner == rank and start), default=1
        )
        self.start[tag] = (rank, max(virtual_time, self.next[priority].get(tenant, 0)))
        self.next[priority][tenant] = self.start[tag][1] + 1

    def take(self, tag: str) -> None:
        rank, start = self.start.pop(tag)
        assert (rank, start) <= min(self.start.values(), default=(rank, start))
        if not any(owner == rank and start for owner, start in self.start.values()):
            self.next[list(Priority)[rank]].clear()


WHOSE = st.tuples(st.sampled_from(TENANTS), st.sampled_from(Priority))
PUT = st.tuples(WHOSE, st.sampled_from([False, False, False, True]))


@given(st.lists(PUT | st.integers(0, 5), max_size=60))
def test_every_taken_message_follows_start_time_fair_queueing(
    redis_server: str, deeds: list[tuple[tuple[str, Priority], bool] | int]
) -> None:
    """Messages of one tenant keep their order, except for messages that go ahead.

    `deeds`: a message to put, or the number to take at once. 0 takes one message in two steps.
    """
    with redis.Redis.from_url(redis_server) as client:
        client.flushall()
        queue, model = Queue(client), Model()
        for deed in [*deeds, *([0, 1] * 3 * len(deeds))]:
            if not isinstance(deed, int):
                (tenant, priority), is_first = deed
                tag = queue.put(tenant, priority, is_first=is_first)
                model.put(tag, tenant, priority, is_first=is_first)
            elif model.start:
                tags = queue.take_at_once(deed) if deed else [queue.take()]
                assert len(tags) <= max(1, deed)
                for tag in tags:
                    model.take(tag)
            assert client.llen(QUEUE) == len(model.start)
            assert client.zcard(keys.FAIR + QUEUE) in (
                {0, 1} if len(model.start) == 1 else {len(model.start)}
            )
        assert not client.keys(f"{keys.FAIR}*")
        client.flushall()


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" , ", " : ")])
def test_a_batch_consumer_finds_the_place_of_an_element_in_any_json_form(
    queue: Queue, separators: tuple[str, str]
) -> None:
    tags = [queue.put() for _ in range(3)]
    for place in range(3):
        element = json.loads(queue.client.lindex(QUEUE, place).rstrip())
        queue.client.lset(QUEUE, place, json.dumps(element, separators=separators))

    taken_tags = list[str]()
    while len(taken_tags) < len(tags):
        taken_tags += queue.take_at_once(5)

    assert taken_tags == tags
    assert not queue.client.keys(f"{keys.FAIR}*")
    assert queue.client.zcard(keys.OUT + QUEUE) == 1, "one job's member, taken three times"


def test_a_batch_consumer_leaves_other_processes_their_share(queue: Queue) -> None:
    for _ in range(16):
        queue.put()

    assert [len(queue.take_at_once(most)) for most in (20, 20, 2, 20)] == [4, 3, 2, 2]


@pytest.mark.slow
def test_tenants_of_unequal_crowds_take_turns(queue: Queue) -> None:
    crowd = [queue.put("ann") for _ in range(1_000)]
    few = [queue.put("bob") for _ in range(10)]
    tags = [queue.take() for _ in range(20)]

    assert {*tags} == {*crowd[:10], *few}
    for tenant in ("ann", "bob"):
        of_tenant = [tag for tag in tags if tag.startswith(tenant)]
        assert of_tenant == (crowd[:10] if tenant == "ann" else few), "each in its own order"


@pytest.mark.slow
def test_tenants_that_arrived_in_turn_wait_equally_long(queue: Queue) -> None:
    for tenant in TENANTS:
        for _ in range(100):
            queue.put(tenant)
    places: dict[str, list[int]] = defaultdict(list)
    for place in range(300):
        places[queue.take().partition("-")[0]].append(place)
    means = [fmean(of_tenant) for of_tenant in places.values()]

    assert max(means) < 1.02 * min(means)


def test_a_tenant_that_publishes_after_every_take_gets_its_turn_and_no_more(queue: Queue) -> None:
    for _ in range(100):
        queue.put("ann")
    taken_tags: Counter[str] = Counter()
    for _ in range(100):
        queue.put("bob")
        taken_tags[queue.take().partition("-")[0]] += 1

    assert abs(taken_tags["ann"] - taken_tags["bob"]) <= 2


@pytest.mark.slow
def test_thousands_of_batch_messages_wait_while_an_interactive_message_waits(queue: Queue) -> None:
    for _ in range(2_000):
        queue.put("ann", BATCH)
    lost = queue.put("ann", BATCH, is_first=True)
    for tenant in ("ann", "bob"):
        assert queue.put(tenant) == queue.take()

    assert queue.take() == lost, "ahead of the others of its class, and of no other"


def test_messages_whose_job_cannot_be_read_have_their_places(queue: Queue) -> None:
    """A worker that was taken over may name such a job, and the next sender adds its message."""
    queue.client.set(keys.job(JobId("j-foreign")), "no hash", ex=600)
    queue.client.rpush(QUEUE, json.dumps(message_for("j-foreign/a.1", "a")) + " ")

    tags = [queue.put(), queue.put()]

    assert {queue.take() for _ in range(3)} == {"a", *tags}


@pytest.mark.parametrize(
    "element",
    [
        b"garbage ",
        b'{"a": 1} ',
        b"7 ",
        b'{"headers": []} ',
        b'{"headers": {"handoff-for": "j-a"}} ',
        b'{"headers": {"handoff-for": "j-a"}, "properties": {"delivery_tag": [1]}} ',
        b'{"headers": {"handoff-for": ["j-a"]}, "properties": {"delivery_tag": "t"}} ',
    ],
)
def test_a_foreign_element_blocks_no_message_of_its_queue(queue: Queue, element: bytes) -> None:
    queue.client.rpush(QUEUE, element)
    tags = [queue.put(), queue.put()]

    assert queue.client.lindex(QUEUE, -1) == element
    queue.client.rpop(QUEUE)
    assert [queue.take(), queue.take()] == tags
