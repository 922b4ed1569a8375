"""The health of Redis and the lengths of its queues are read as typed values."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.health import QueueDepth
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.types.errors import StoreUnavailable, UnusableRedis
from tests.doubles.jobs import a_job, granted_claim, issue
from tests.doubles.redis_faults import OwnRedis
from tests.refusals import refusal_of


def test_the_facts_describe_this_redis(store: Store) -> None:
    facts = store.health.read_facts()

    assert facts.version >= (6, 2)
    assert (facts.is_primary, facts.append_only, facts.eviction) == (True, False, "noeviction")
    assert facts.max_memory_bytes == 0
    assert facts.used_memory_bytes > 100_000


def test_info_gives_the_settings_that_redis_keeps_private(store: Store, redis_url: str) -> None:
    store.connection.redis.acl_setuser(
        "reader", enabled=True, passwords=["+secret"], commands=["+info", "+ping"], keys=["*"]
    )
    restricted = open_store(f"redis://reader:secret@{redis_url.split('@')[1]}", Settings())

    facts = restricted.health.read_facts()

    restricted.connection.close()
    store.connection.redis.acl_deluser("reader")
    assert (facts.append_only, facts.eviction) == (False, "noeviction")


def test_an_absent_redis_has_the_usual_error() -> None:
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        open_store("redis://127.0.0.1:1/0", Settings()).health.read_facts()


def test_a_redis_cluster_is_refused(tmp_path: Path) -> None:
    server = OwnRedis(tmp_path, "--cluster-enabled", "yes")
    server.start()
    store = open_store(server.url, Settings())
    try:
        for look in (store.health.read_facts, store.health.check_no_cluster):
            with pytest.raises(UnusableRedis, match="Redis Cluster, which is not supported"):
                look()
    finally:
        store.connection.close()
        server.kill()


def test_a_redis_without_info_is_accepted(store: Store, redis_url: str) -> None:
    store.connection.redis.acl_setuser(
        "quiet", enabled=True, passwords=["+pw"], commands=["+@all", "-info"], keys=["*"]
    )
    restricted = open_store(f"redis://quiet:pw@{redis_url.split('@')[1]}", Settings())
    try:
        assert refusal_of(restricted.health.check_no_cluster) is None
    finally:
        restricted.connection.close()
        store.connection.redis.acl_deluser("quiet")


def test_messages_are_counted(store: Store, redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.lpush("roles", "one", "two")

    assert store.health.count_messages(["roles", "nothing"]) == {"roles": 2, "nothing": 0}


def test_every_queue_with_messages_is_known_with_the_number_of_wanted_messages(
    store: Store,
) -> None:
    job_id = a_job(store)
    issue(store, job_id, "a.1", "b.1", role="researcher")
    store.connection.redis.lpush("researcher", "a.1", "b.1", "of a job that has ended")
    granted_claim(store, job_id, "a.1")
    store.connection.redis.lrem("researcher", 1, "a.1")
    issue(store, job_id, "c.1", role="writer")

    assert store.health.read_depths() == [
        QueueDepth("researcher", messages=2, waiting_handoffs=1),
        QueueDepth("writer", messages=0, waiting_handoffs=1),
    ]


def test_a_new_system_has_no_queues(store: Store) -> None:
    assert store.health.read_depths() == []
