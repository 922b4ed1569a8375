"""Workers announce their specialists, and announcements of dead workers expire. The majority
decides if workers differ.
"""

from __future__ import annotations

import json

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.pauses import UNREADABLE, Pause
from handoff_queue.shared.store.presence import (
    ANNOUNCED_FOR_S,
    MAX_ANNOUNCED_BYTES,
    LiveProcess,
    PresenceStore,
)
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.presence import Announcement, Node
from handoff_queue.shared.types.specialist import SpecialistSpec
from tests.doubles.handoffs import a_spec


@pytest.fixture
def presence(store: Store) -> PresenceStore:
    return PresenceStore(store.connection)


def announcement_of(
    worker: str, *specs: SpecialistSpec, slots: int = 4, model: str = "offline"
) -> Announcement:
    return Announcement(worker=worker, specialists=specs, slots=slots, model=model)


def test_announced_specialists_are_served(store: Store, presence: PresenceStore) -> None:
    presence.announce(announcement_of("w1", a_spec(name="researcher"), a_spec(name="writer")))
    presence.announce(announcement_of("w2", a_spec(name="researcher"), slots=3, model="anthropic"))

    served = store.presence.load_served_specialists()
    assert sorted(served) == ["researcher", "writer"]
    assert served["researcher"].workers == ("w1", "w2")
    assert (served["researcher"].slots, served["researcher"].models) == (
        7,
        ("anthropic", "offline"),
    )
    assert served["writer"].digest == a_spec(name="writer").content_digest


def test_queued_messages_are_counted(store: Store, presence: PresenceStore) -> None:
    presence.announce(announcement_of("w1", a_spec(name="researcher")))
    store.connection.redis.lpush("researcher", "one", "two")

    assert store.presence.load_served_specialists()["researcher"].queued == 2


def test_an_announcement_holds_for_a_while_only(store: Store, presence: PresenceStore) -> None:
    presence.announce(announcement_of("w1", a_spec()))
    assert 0 < store.connection.redis.ttl(keys.worker("researcher", "w1")) <= ANNOUNCED_FOR_S

    store.connection.redis.delete(keys.worker("researcher", "w1"))  # has the effect of its expiry
    assert store.presence.load_served_specialists() == {}


def test_workers_that_left_long_ago_are_not_looked_up(
    store: Store, presence: PresenceStore
) -> None:
    presence.announce(announcement_of("w1", a_spec()))
    name = a_spec().name
    store.connection.redis.zadd(keys.SERVING, {f"{name}/w1": 1})
    store.connection.redis.zadd(keys.announced_workers(name), {"w1": 1})
    presence.announce(announcement_of("w2", a_spec()))

    assert store.connection.redis.zrange(keys.SERVING, 0, -1) == [f"{name}/w2".encode()]
    assert store.connection.redis.zrange(keys.announced_workers(name), 0, -1) == [b"w2"]


def test_a_leaving_worker_withdraws_its_announcement(store: Store, presence: PresenceStore) -> None:
    presence.announce(announcement_of("w1", a_spec()))
    presence.withdraw(announcement_of("w1", a_spec()))

    assert store.presence.load_served_specialists() == {}


def test_the_majority_decides_if_workers_differ(store: Store, presence: PresenceStore) -> None:
    old, new = a_spec(name="researcher"), a_spec("search_documents", name="researcher")
    presence.announce(announcement_of("w1", old))
    presence.announce(announcement_of("w2", new))
    presence.announce(announcement_of("w3", new))

    assert store.presence.load_served_specialists()["researcher"].digest == new.content_digest
    assert store.presence.load_served_specialists()["researcher"].workers == ("w1", "w2", "w3")


def test_a_worker_of_another_version_does_not_hide_the_rest(
    store: Store, presence: PresenceStore
) -> None:
    presence.announce(announcement_of("w1", a_spec()))
    presence.announce(announcement_of("w2", a_spec()))
    store.connection.redis.set(keys.worker("researcher", "w2"), '{"schema_version": 99}', ex=10)

    assert store.presence.load_served_specialists()["researcher"].workers == ("w1",)


def test_fields_of_a_later_version_are_ignored(store: Store, presence: PresenceStore) -> None:
    presence.announce(announcement_of("w1", a_spec(name="researcher")))
    text = json.loads(announcement_of("w1", a_spec(name="researcher")).to_json()) | {
        "colour": "blue"
    }
    store.connection.redis.set(keys.worker("researcher", "w1"), json.dumps(text), ex=10)

    assert store.presence.load_served_specialists()["researcher"].workers == ("w1",)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"\xff", b"[]", b'{"slots": "many"}', b"x" * (MAX_ANNOUNCED_BYTES + 1)]
)
def test_a_live_process_with_an_unreadable_announcement_is_still_listed(
    store: Store, presence: PresenceStore, text: bytes
) -> None:
    presence.announce(announcement_of("w1", a_spec()))
    presence.announce_supervisor("s1", Node(node="s@h"))
    for key in (keys.worker("researcher", "w1"), keys.supervisor("s1")):
        store.connection.redis.set(key, text, ex=10)

    assert store.presence.list_processes() == [
        LiveProcess("supervisor", "s1", None),
        LiveProcess("worker", "w1", None),
    ]
    assert store.presence.load_served_specialists() == {}


def test_names_that_are_not_text_stop_no_reader(store: Store, presence: PresenceStore) -> None:
    presence.announce(announcement_of("w1", a_spec(name="researcher")))
    soon_ms = (store.connection.now() + 10) * 1_000
    for key in (keys.SERVING, keys.announced_workers("researcher")):
        store.connection.redis.zadd(key, {b"\xff/\xfe": soon_ms, b"": soon_ms})
    store.connection.redis.hset(keys.PAUSED, b"\xff", b"{")

    assert "researcher" in store.presence.read_presence().queues
    assert sorted(store.presence.load_served_specialists()) == ["researcher"]
    assert len(store.presence.list_processes()) == 3
    store.connection.redis.delete(keys.SERVING, keys.announced_workers("researcher"), keys.PAUSED)


def test_a_pause_that_cannot_be_read_still_holds(store: Store, presence: PresenceStore) -> None:
    presence.announce(announcement_of("w1", a_spec(name="researcher")))
    store.connection.redis.hset(keys.PAUSED, "researcher", b"\xff")

    assert list(presence.read_presence().paused) == ["researcher"]
    assert presence.load_served_specialists()["researcher"].paused == Pause(at=0, reason=UNREADABLE)
    assert store.pauses.read_all()["researcher"].reason == UNREADABLE
    store.pauses.unpause("researcher")
    assert presence.read_presence().paused == {}
