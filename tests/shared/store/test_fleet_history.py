"""The history of past handoffs gives the samples of forecasts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim import ClaimVerdict, HandoffClaim
from handoff_queue.shared.store.claim_requests import ClaimRequest
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.rate_limits import Allowance, ExpectedUsage, RateLimits
from handoff_queue.shared.types.usage import MAX_FIGURE, Usage
from tests.doubles.jobs import (
    a_job,
    claim,
    finish,
    finish_with,
    granted_claim,
    handoff_key,
    issue,
    model_reply,
    result_of,
    text_of,
)
from tests.waiting import wait_until

WORST = WorstCase(1_000, 1_000, 0)
BUCKET = "account:some-model"
EXPECTED = ExpectedUsage(BUCKET, 400, 500)
AN_HOUR_MS = 3_600_000


@pytest.fixture
def job_id(store: Store) -> JobId:
    job_id = a_job(store)
    issue(store, job_id, "a.1", "b.1")
    return job_id


def newest(store: Store) -> dict[str, Any]:
    return store.history.read(["researcher"])[0]["researcher"][0]


def test_a_sample_names_the_bucket_of_its_calls_and_their_use_of_it(
    store: Store, job_id: JobId
) -> None:
    claimed = store.claims.claim(
        ClaimRequest(job_id, HandoffId("a.1"), compute_digest(text_of("a.1")), "w", WORST, EXPECTED)
    )
    claimed.checkpoint(model_reply())
    used = Usage(input_tokens=1_200, cache_read_tokens=200, output_tokens=50)
    result = result_of(claimed).model_copy(update={"usage": used})
    finish_with(claimed, result)

    sample = newest(store)
    assert (sample["turns"], sample["waited_ms"]) == (1, 0)
    assert sample["bucket"] == {"name": BUCKET, "input": 1_000, "output": 50}


def test_a_handoff_without_rate_limits_has_no_bucket(store: Store, job_id: JobId) -> None:
    finish(granted_claim(store, job_id, "a.1"))

    assert newest(store)["bucket"] is None


def test_a_sample_has_the_money_that_its_batches_saved(store: Store, job_id: JobId) -> None:
    claimed, used = granted_claim(store, job_id, "a.1"), model_reply().usage
    for microusd in (30, 12):
        assert claimed.reserve(WORST) is None
        saved = {"batch_calls": 1, "batch_saved_microusd": microusd}
        reply = model_reply().model_copy(update={"usage": used.model_copy(update=saved)})
        claimed.checkpoint(reply)
    finish(claimed)
    finish(granted_claim(store, job_id, "b.1"))

    samples = store.history.read(["researcher"])[0]["researcher"]
    assert [sample["saved"] for sample in samples] == [0, 42]


def test_a_sample_has_the_money_for_tools_of_the_provider(store: Store, job_id: JobId) -> None:
    claimed = granted_claim(store, job_id, "a.1")
    assert claimed.reserve(WORST) is None
    used = model_reply().usage.model_copy(update={"server_tools_microusd": 30})
    claimed.checkpoint(model_reply().model_copy(update={"usage": used}))
    finish(claimed)

    assert newest(store)["server_tools"] == 30


def test_a_sample_of_an_older_version_saved_nothing(store: Store) -> None:
    line = '{"at": 5, "usd": 1, "ms": 7, "waited_ms": 0, "turns": 1, "bucket": null}'
    store.connection.redis.lpush(keys.history("researcher"), line)
    store.connection.redis.expire(keys.history("researcher"), 60)

    sample = newest(store)
    assert (sample["saved"], sample["server_tools"]) == (0, 0)


def test_the_wait_for_the_provider_is_separate_from_work_also_while_deferred(
    store: Store, job_id: JobId
) -> None:
    first, waiting = granted_claim(store, job_id, "a.1"), granted_claim(store, job_id, "b.1")
    assert first.reserve(WORST, EXPECTED) is None
    first.report_limits(RateLimits(requests=Allowance(1, 0)))
    assert waiting.reserve(WORST, EXPECTED) is not None
    for since in ("waits_since", "started_at"):
        store.connection.redis.hincrby(
            handoff_key(store, job_id, waiting.handoff_id), since, -AN_HOUR_MS
        )
    assert waiting.defer(0.001, "rate limit")
    first.report_limits(RateLimits(requests=Allowance(100, 100)))

    def back() -> HandoffClaim | None:
        again = claim(store, job_id, "b.1")
        return again if again.verdict is ClaimVerdict.GRANTED else None

    again = wait_until(back, expected="the end of the deferral")
    assert again is not None
    assert again.reserve(WORST, EXPECTED) is None
    assert not store.connection.redis.hexists(
        handoff_key(store, job_id, waiting.handoff_id), "waits_since"
    )
    finish(again)

    sample = newest(store)
    assert AN_HOUR_MS <= sample["waited_ms"] <= sample["ms"]


def test_the_sample_of_a_reply_that_counts_absurdly_many_tokens_can_be_read(
    store: Store, job_id: JobId
) -> None:
    claimed = store.claims.claim(
        ClaimRequest(job_id, HandoffId("a.1"), compute_digest(text_of("a.1")), "w", WORST, EXPECTED)
    )
    claimed.checkpoint(model_reply())
    used = Usage(input_tokens=10**17, output_tokens=10**17, cost_microusd=None)
    finish_with(claimed, result_of(claimed).model_copy(update={"usage": used}))

    assert newest(store)["bucket"] == {
        "name": BUCKET,
        "input": MAX_FIGURE,
        "output": MAX_FIGURE,
    }


UNREADABLE = [
    b"",
    b"{",
    b"42",
    b"[]",
    b"null",
    b"\xff",
    b"{}",
    *(
        b'{"at": 5, "usd": %s, "ms": 7, "waited_ms": 0, "turns": 1, "bucket": %s}' % wrong
        for wrong in (
            (b"NaN", b"null"),
            (b"1e999", b"null"),
            (b'"1"', b"null"),
            (b"1" + b"0" * 400, b"null"),
            (b"1", b'"a bucket"'),
            (b"1", b'{"name": "x", "input": null, "output": 5}'),
            (b"1", b'{"name": "x", "input": 5, "output": -1}'),
            (b"-1", b"null"),
        )
    ),
    b"[" * 100_000,
]


@pytest.mark.parametrize("line", UNREADABLE, ids=range(len(UNREADABLE)))
def test_a_line_that_is_not_a_sample_and_no_score_is_skipped(store: Store, line: bytes) -> None:
    redis = store.connection.redis
    sample = {"at": 5, "usd": None, "ms": 7, "waited_ms": 0, "turns": 1, "bucket": None, "saved": 9}
    sample["server_tools"] = 7
    score_line = '{"cost_likely": null, "cost_most": 1.5, "time_likely": 0.5, "time_most": 2}'
    redis.rpush(keys.history("researcher"), line, json.dumps(sample))
    redis.rpush(keys.SCORES, line, score_line)

    samples, scores = store.history.read(["researcher"])

    assert samples["researcher"] == [sample]
    assert [score["cost_most"] for score in scores] == [1.5]
    redis.delete(keys.history("researcher"), keys.SCORES)
