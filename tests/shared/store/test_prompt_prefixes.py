"""The processes of a role write a prefix of their model calls once to the provider's cache."""

from __future__ import annotations

from handoff_queue.shared.agent.prompt_cache_prefixes import (
    ASK_EVERY_S,
    CACHED_S,
    MAX_WAIT_S,
    PromptCaches,
)
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.prompt_prefixes import PromptPrefixes
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.types.usage import Usage

PREFIX = "researcher:abc"
WRITTEN = Usage(input_tokens=2_000, cache_write_tokens=1_500)
LATER = 1 + ASK_EVERY_S
"""A time at which a process that began to wait at 1 asks again."""


def two_processes(store: Store) -> tuple[PromptCaches, PromptCaches]:
    first, second = (PromptCaches(PromptPrefixes(store.connection)) for _ in range(2))
    return first, second


def test_a_process_waits_until_the_call_of_another_process_has_begun(store: Store) -> None:
    first, second = two_processes(store)

    assert first.claim_prefix(PREFIX, 1)
    assert not second.claim_prefix(PREFIX, 1)
    first.record_reply_begun(PREFIX, 1, WRITTEN)
    assert second.claim_prefix(PREFIX, LATER)


def test_a_process_asks_only_some_times_a_second_for_all_its_calls(store: Store) -> None:
    first, second = two_processes(store)
    assert first.claim_prefix(PREFIX, 1)
    assert not second.claim_prefix(PREFIX, 1)
    first.record_reply_begun(PREFIX, 1, WRITTEN)

    assert not second.claim_prefix(PREFIX, LATER - ASK_EVERY_S / 2)


def test_a_call_that_failed_lets_another_process_begin(store: Store) -> None:
    first, second = two_processes(store)
    assert first.claim_prefix(PREFIX, 1)
    assert not second.claim_prefix(PREFIX, 1)

    first.record_call_ended(PREFIX)

    assert second.claim_prefix(PREFIX, LATER)


def test_the_end_of_a_call_leaves_the_prefix_cached_for_the_others(store: Store) -> None:
    first, second = two_processes(store)
    assert first.claim_prefix(PREFIX, 1)
    first.record_reply_begun(PREFIX, 1, WRITTEN)
    first.record_call_ended(PREFIX)

    assert second.claim_prefix(PREFIX, 1)
    assert second.claim_prefix(PREFIX, 1), "the second process waits for none of its own calls"


def test_a_server_without_a_cache_makes_no_process_wait(store: Store) -> None:
    first, second = two_processes(store)
    assert first.claim_prefix(PREFIX, 1)
    first.record_reply_begun(PREFIX, 1, Usage(input_tokens=2_000))
    first.record_call_ended(PREFIX)

    assert second.claim_prefix(PREFIX, 1)


def test_a_killed_process_costs_the_others_a_few_seconds(store: Store) -> None:
    first, _ = two_processes(store)
    assert first.claim_prefix(PREFIX, 1)
    key = keys.prompt_prefix(*PREFIX.split(":"))

    assert 0 < store.connection.redis.pttl(key) <= MAX_WAIT_S * 1000
    first.record_reply_begun(PREFIX, 1, WRITTEN)
    assert MAX_WAIT_S * 1000 < store.connection.redis.pttl(key) <= CACHED_S * 1000


def test_without_redis_each_process_begins_at_once() -> None:
    away = open_store("redis://127.0.0.1:1/0", Settings())
    caches = PromptCaches(PromptPrefixes(away.connection))

    assert caches.claim_prefix(PREFIX, 1)
    caches.record_reply_begun(PREFIX, 1, WRITTEN)
    caches.record_call_ended(PREFIX)
