"""A handoff is claimed, makes a call and ends, although a key with statistics holds garbage."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim_requests import ClaimRequest
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.ids import HandoffId
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.rate_limits import Allowance, ExpectedUsage, RateLimits
from handoff_queue.shared.types.usage import Usage
from tests.doubles.jobs import a_job, finish_with, issue, model_reply, result_of, text_of

BUCKET = "account:some-model"
ROLE = "researcher"
GARBAGE = [b"", b"\xff", b"{", b"nan", b"inf", b"1e999", b"9" * 400, b"-", b"null"]
DAY_FIELDS = ("turns", "input_tokens", "output_tokens", "usd", "reserved_turns", "reserved_tokens")
BUCKET_FIELDS = (
    *("known", "until", "strikes", "going", "going_until", "cleared", "output_mean", "at"),
    *("requests", "requests_level", "input", "input_level", "output", "output_level", "why"),
)
Break = Callable[[Any, bytes], None]


def garbage_in_fields(key: Callable[[], str], fields: tuple[str, ...]) -> Break:
    def write(redis: Any, garbage: bytes) -> None:
        redis.hset(key(), mapping=dict.fromkeys(fields, garbage))

    return write


def today() -> str:
    return keys.day(TODAY[0])


TODAY = [0]
BREAKS: dict[str, Break] = {
    "history": lambda redis, garbage: redis.lpush(keys.history(ROLE), garbage),
    "history of another type": lambda redis, garbage: redis.set(keys.history(ROLE), garbage),
    "scores": lambda redis, garbage: redis.lpush(keys.SCORES, garbage),
    "the day": garbage_in_fields(today, DAY_FIELDS),
    "the tenant's day": garbage_in_fields(lambda: keys.day(TODAY[0], "default"), DAY_FIELDS),
    "day of another type": lambda redis, garbage: redis.set(today(), garbage),
    "rate-limit bucket": garbage_in_fields(lambda: keys.bucket(BUCKET), BUCKET_FIELDS),
    "rate-limit bucket of another type": lambda redis, garbage: redis.set(
        keys.bucket(BUCKET), garbage
    ),
    "silence": garbage_in_fields(lambda: keys.OUTAGE, ("last_call", "since", "until", "times")),
    "presence": lambda redis, garbage: redis.zadd(
        keys.SERVING, {garbage: time.time() * 1000 + 30_000}
    ),
    "an announcement": lambda redis, garbage: redis.set(keys.worker(ROLE, "w"), garbage),
}


@pytest.fixture
def store_with_shared_keys(store: Store) -> Iterator[Store]:
    """Yield the store. Remove all shared keys afterwards."""
    TODAY[0] = int(store.connection.now() // 86_400)
    yield store
    store.connection.redis.delete(
        *(keys.history(ROLE), keys.SCORES, today(), keys.day(TODAY[0], "default")),
        *(
            keys.bucket(BUCKET),
            keys.BUCKETS,
            keys.OUTAGE,
            keys.SERVING,
            keys.worker(ROLE, "w"),
        ),
    )


@pytest.mark.parametrize("garbage", GARBAGE, ids=repr)
@pytest.mark.parametrize("place", BREAKS)
def test_a_handoff_finishes_with_any_garbage_in(
    store_with_shared_keys: Store, place: str, garbage: bytes
) -> None:
    job_id = a_job(store_with_shared_keys)
    issue(store_with_shared_keys, job_id, "a.1")
    BREAKS[place](store_with_shared_keys.connection.redis, garbage)

    claiming = ClaimRequest(job_id, HandoffId("a.1"), compute_digest(text_of("a.1")), "w")
    claimed = store_with_shared_keys.claims.claim(claiming)
    assert claimed.reserve(WorstCase(1_000, 1_000, 5), ExpectedUsage(BUCKET, 400, 500)) is None
    claimed.report_limits(RateLimits(requests=Allowance(100, 100)))
    claimed.checkpoint(model_reply())
    finish_with(claimed, result_of(claimed).model_copy(update={"usage": Usage(input_tokens=5)}))

    samples, _ = store_with_shared_keys.history.read([ROLE])
    assert len(samples[ROLE]) == 1, "the sample of this handoff can be read"
    assert store_with_shared_keys.daily_budgets.find_refusal("default") is None
    assert store_with_shared_keys.presence.read_presence([job_id]).unclaimed == {}
    assert store_with_shared_keys.presence.load_served_specialists() == {}
    assert store_with_shared_keys.presence.announce_supervisor("s") == 0
    assert store_with_shared_keys.fleet_load.now().open_jobs >= 1


def test_a_supervisor_is_announced_though_the_time_of_the_caps_cannot_be_read(
    store_with_shared_keys: Store,
) -> None:
    store_with_shared_keys.connection.redis.hset(keys.CAPS, "since", b"\xff")

    assert store_with_shared_keys.presence.announce_supervisor("s") == 0
    store_with_shared_keys.connection.redis.delete(keys.CAPS)
