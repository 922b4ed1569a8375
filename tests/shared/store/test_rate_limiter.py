"""The store's rate limiter has token buckets and a line for each bucket, and survives crashes of
callers.

tests/contracts/test_rate_limiter.py holds the other tests.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha1

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim import HandoffClaim
from handoff_queue.shared.store.claim_requests import ClaimRequest
from handoff_queue.shared.store.rate_limiter import compute_account
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.checkpoints import ModelCallFailed, WorstCase
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.rate_limits import (
    NO_RATE_LIMITS,
    Allowance,
    ExpectedUsage,
    RateLimits,
    Wait,
)
from handoff_queue.shared.types.usage import NOTHING_USED
from tests.doubles.jobs import a_job, granted_claim, issue, model_reply, text_of
from tests.waiting import wait_until

WORST = WorstCase(1_000, 1_000, 0)
BUCKET = "account:some-model"
EXPECTED = ExpectedUsage(BUCKET, 400, 500)
FAILED = ModelCallFailed(error="no", usage=NOTHING_USED)
MANY = Allowance(1_000_000, 1_000_000)
HALF_A_WINDOW_MS = 30_000


@pytest.fixture
def job_id(store: Store) -> JobId:
    return a_job(store)


def claim_named(store: Store, job_id: JobId, name: str) -> HandoffClaim:
    issue(store, job_id, f"{name}.1")
    return granted_claim(store, job_id, f"{name}.1", worker=name)


def report_limits(store: Store, job_id: JobId, limits: RateLimits = NO_RATE_LIMITS) -> HandoffClaim:
    """Report the first limits of the bucket, and return the claim of the first call."""
    first = claim_named(store, job_id, "first")
    assert first.reserve(WORST, EXPECTED) is None
    first.report_limits(limits)
    return first


def wait_of(claimed: HandoffClaim, expected: ExpectedUsage = EXPECTED) -> Wait:
    wait = claimed.reserve(WORST, expected)
    assert wait is not None
    return wait


def scripts_run(store: Store) -> int:
    return int(
        store.connection.redis.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0)
    )


def bucket_fields(store: Store) -> dict[bytes, bytes]:
    fields: dict[bytes, bytes] = store.connection.redis.hgetall(keys.bucket(BUCKET))
    return fields


def silence_head_of_line(store: Store) -> None:
    """Let the caller at the head of the line count as silent."""
    store.connection.redis.hset(keys.bucket(BUCKET), "going_until", 1)


def age_half_a_window(store: Store, calls: list[HandoffClaim]) -> None:
    """Make the buckets and the allowed calls half a window older."""
    store.connection.redis.hincrby(keys.bucket(BUCKET), "at", -HALF_A_WINDOW_MS)
    for call in calls:
        assert call.limiter.call is not None
        call.limiter.call = replace(
            call.limiter.call, at_ms=call.limiter.call.at_ms - HALF_A_WINDOW_MS
        )


@pytest.mark.parametrize(
    "limits", [NO_RATE_LIMITS, RateLimits(requests=MANY)], ids=["unlimited", "limited"]
)
def test_a_turn_costs_two_round_trips_and_one_more_to_report_limits(
    store: Store, job_id: JobId, limits: RateLimits
) -> None:
    claimed = report_limits(store, job_id, limits)
    before = scripts_run(store)
    for _ in range(5):
        claimed.checkpoint(model_reply(stop_reason="end_turn"))
        assert claimed.reserve(WORST, EXPECTED) is None
        claimed.report_limits(limits)
    assert scripts_run(store) - before == (10 if limits == NO_RATE_LIMITS else 15)


def test_a_refused_call_returns_no_more_than_the_server_has_left(
    store: Store, job_id: JobId
) -> None:
    report_limits(store, job_id).report_refusal(
        "rate limit", 0, RateLimits(input_tokens=Allowance(60_000, 2_000))
    )
    first = claim_named(store, job_id, "b")
    wait_until(lambda: first.reserve(WORST, EXPECTED) is None, expected="the probe")
    first.report_refusal("rate limit", 0, RateLimits(input_tokens=Allowance(60_000, 0)))
    first.checkpoint(FAILED)
    assert float(bucket_fields(store)[b"input_level"]) < EXPECTED.input_tokens


def test_another_bucket_is_not_held_back(store: Store, job_id: JobId) -> None:
    report_limits(store, job_id).report_refusal("rate limit", 60)
    assert (
        claim_named(store, job_id, "other").reserve(
            WORST, ExpectedUsage("account:another-model", 400, 500)
        )
        is None
    )


def test_the_first_call_is_allowed_together_with_the_claim(store: Store, job_id: JobId) -> None:
    issue(store, job_id, "a.1", "b.1")
    a, b = (
        store.claims.claim(
            ClaimRequest(
                job_id, HandoffId(name), compute_digest(text_of(name)), "w", WORST, EXPECTED
            )
        )
        for name in ("a.1", "b.1")
    )
    assert (a.reserved, b.reserved) == (True, False)
    assert wait_of(b).why == "first call"
    assert a.reserve(WORST, EXPECTED) is None
    a.report_limits(NO_RATE_LIMITS)
    assert b.reserve(WORST, EXPECTED) is None


def test_a_wait_for_the_provider_reserves_no_budget(store: Store) -> None:
    job_id = a_job(store, max_turns=2)
    report_limits(store, job_id).report_refusal("rate limit", 60)
    wait_of(claim_named(store, job_id, "waiting"))
    assert (
        claim_named(store, job_id, "other").reserve(
            WORST, ExpectedUsage("account:another-model", 1, 1)
        )
        is None
    )


def test_a_long_reason_of_a_refusal_gets_no_copy(store: Store, job_id: JobId) -> None:
    """A worker that was taken over may have written it."""
    report_limits(store, job_id).report_refusal("rate limit", 60)
    store.connection.redis.hset(keys.bucket(BUCKET), "why", "x" * 2_000)

    assert wait_of(claim_named(store, job_id, "next")).why == "rate limit"
    assert b"why" not in bucket_fields(store)


def test_a_silent_probe_delays_other_calls_only_briefly(store: Store, job_id: JobId) -> None:
    assert claim_named(store, job_id, "silent").reserve(WORST, EXPECTED) is None
    wait_of(second := claim_named(store, job_id, "second"))
    silence_head_of_line(store)
    assert second.reserve(WORST, EXPECTED) is None
    assert claim_named(store, job_id, "third").reserve(WORST, EXPECTED) is None


def test_a_single_call_follows_a_probe_whose_process_died(store: Store, job_id: JobId) -> None:
    first, second, third = (
        report_limits(store, job_id),
        claim_named(store, job_id, "b"),
        claim_named(store, job_id, "c"),
    )
    first.report_refusal("rate limit", 0.01)
    wait_until(lambda: second.reserve(WORST, EXPECTED) is None, expected="the probe")
    silence_head_of_line(store)
    assert third.reserve(WORST, EXPECTED) is None
    assert wait_of(first).why == "rate limit"


def test_a_probe_that_breaks_is_followed_by_the_next_at_once(store: Store, job_id: JobId) -> None:
    first, second = report_limits(store, job_id), claim_named(store, job_id, "b")
    first.report_refusal("rate limit", 0.01)
    wait_until(lambda: second.reserve(WORST, EXPECTED) is None, expected="the probe")
    wait_of(first)
    second.checkpoint(FAILED)
    assert first.reserve(WORST, EXPECTED) is None


def test_calls_that_were_refused_together_count_once(store: Store, job_id: JobId) -> None:
    report_limits(store, job_id)
    volley = [claim_named(store, job_id, f"v-{letter}") for letter in "abcdef"]
    assert all(refused_call.reserve(WORST, EXPECTED) is None for refused_call in volley)
    for refused_call in volley:
        refused_call.report_refusal("rate limit", None)
    assert wait_of(volley[0]).seconds <= 1


def test_a_refusal_older_than_the_last_success_is_ignored(store: Store, job_id: JobId) -> None:
    first, late, probe = (
        report_limits(store, job_id),
        claim_named(store, job_id, "late"),
        claim_named(store, job_id, "probe"),
    )
    assert late.reserve(WORST, EXPECTED) is None
    first.report_refusal("rate limit", 0.01)
    wait_until(lambda: probe.reserve(WORST, EXPECTED) is None, expected="the probe")
    probe.report_limits(NO_RATE_LIMITS)
    late.report_refusal("rate limit", 60)
    assert claim_named(store, job_id, "next").reserve(WORST, EXPECTED) is None


def test_input_tokens_are_paced_and_the_unused_part_flows_back(store: Store, job_id: JobId) -> None:
    first = report_limits(store, job_id, RateLimits(input_tokens=Allowance(600, 510)))
    second, third = claim_named(store, job_id, "b"), claim_named(store, job_id, "c")
    assert second.reserve(WORST, EXPECTED) is None
    assert 10 < wait_of(third).seconds <= 30, (
        "10 tokens a second, which are kept back, some 100 more left, 400 wanted"
    )
    second.checkpoint(model_reply(input_tokens=10, output_tokens=5))
    assert third.reserve(WORST, EXPECTED) is None
    assert first.reserve(WORST, ExpectedUsage(BUCKET, 1, 1)) is None


def test_a_call_larger_than_the_limit_goes_when_the_bucket_is_full(
    store: Store, job_id: JobId
) -> None:
    report_limits(store, job_id, RateLimits(input_tokens=Allowance(300, 300)))
    assert claim_named(store, job_id, "b").reserve(WORST, EXPECTED) is None
    assert wait_of(claim_named(store, job_id, "c")).seconds > 50


def test_expected_output_follows_earlier_calls(store: Store, job_id: JobId) -> None:
    first = report_limits(store, job_id, RateLimits(output_tokens=Allowance(600, 600)))
    first.checkpoint(model_reply(output_tokens=20))
    calls = 0
    while (
        calls < 50
        and claim_named(store, job_id, f"n-{chr(97 + calls % 26)}{calls // 26}").reserve(
            WORST, EXPECTED
        )
        is None
    ):
        calls += 1
    assert 28 <= calls < 50, "20 tokens each, and some more that flow back meanwhile"


def test_calls_later_in_the_line_wait_longer(store: Store, job_id: JobId) -> None:
    report_limits(store, job_id, RateLimits(requests=Allowance(6, 0)))
    line = [claim_named(store, job_id, name) for name in ("b", "c", "d")]
    promised = [wait_of(caller).seconds for caller in line]
    assert promised == sorted(promised)
    assert 15 < promised[2] <= 32
    assert wait_of(line[2]).seconds > 15, "who asks again keeps its place"


def test_a_dead_caller_in_line_delays_no_other(store: Store, job_id: JobId) -> None:
    report_limits(store, job_id, RateLimits(requests=Allowance(6, 0)))
    dead, alive = claim_named(store, job_id, "dead"), claim_named(store, job_id, "alive")
    wait_of(dead)
    assert wait_of(alive).seconds > 15
    call = sha1(dead.limiter.member.encode()).hexdigest()
    store.connection.redis.zadd(keys.bucket_alive(BUCKET), {call: 1})
    assert wait_of(alive).seconds <= 12


def test_a_servers_lower_remainder_overrides_ours(store: Store, job_id: JobId) -> None:
    first = report_limits(store, job_id, RateLimits(requests=Allowance(6, 6)))
    first.report_limits(RateLimits(requests=Allowance(6, 0)))
    late = [claim_named(store, job_id, name) for name in ("b", "c", "d", "e")]
    assert sum(call.reserve(WORST, EXPECTED) is None for call in late) <= 2, (
        "somebody else uses the same account"
    )


def test_a_full_bucket_of_the_server_does_not_refill_during_a_burst(
    store: Store, job_id: JobId
) -> None:
    report_limits(store, job_id, RateLimits(requests=Allowance(6, 4)))
    burst = [claim_named(store, job_id, name) for name in ("b", "c", "d")]
    assert all(call.reserve(WORST, EXPECTED) is None for call in burst)
    age_half_a_window(store, burst)
    burst[-1].report_limits(RateLimits(requests=Allowance(6, 0)))
    late = [claim_named(store, job_id, name) for name in ("e", "f", "g")]
    assert [call.reserve(WORST, EXPECTED) is None for call in late] == [False, False, False], (
        "nobody goes on what may have been rounded off"
    )


def test_a_new_limit_counts_at_once(store: Store, job_id: JobId) -> None:
    first = report_limits(store, job_id, RateLimits(requests=Allowance(6, 0)))
    second = claim_named(store, job_id, "b")
    wait_of(second)
    first.report_limits(RateLimits(requests=Allowance(600, 590)))
    assert second.reserve(WORST, EXPECTED) is None


def test_a_call_that_was_never_made_returns_its_share(store: Store, job_id: JobId) -> None:
    report_limits(store, job_id, RateLimits(requests=Allowance(60, 2)))
    issue(store, job_id, "a.1")
    claimed = store.claims.claim(
        ClaimRequest(job_id, HandoffId("a.1"), compute_digest(text_of("a.1")), "w", WORST, EXPECTED)
    )
    assert claimed.reserved
    claimed.release()
    assert claim_named(store, job_id, "b").reserve(WORST, EXPECTED) is None


def test_an_account_is_named_without_its_key() -> None:
    named = compute_account("anthropic", None, "sk-secret")
    assert "secret" not in named
    assert named != compute_account("anthropic", None, "sk-another")
    assert named == compute_account("anthropic", None, "sk-secret")


def test_a_call_that_another_model_may_serve_does_not_delay_the_calls_of_others(
    store: Store, job_id: JobId
) -> None:
    report_limits(store, job_id, RateLimits(requests=Allowance(60, 0)))
    flexible, other = claim_named(store, job_id, "b"), claim_named(store, job_id, "c")

    assert flexible.reserve(WORST, replace(EXPECTED, joins_line=False)) is not None
    wait = other.reserve(WORST, EXPECTED)

    assert wait is not None
    assert wait.seconds <= 2.1, "one second a request, and one on the way; a call in front adds one"


def test_a_flood_of_dead_callers_in_line_makes_no_script_long(store: Store, job_id: JobId) -> None:
    report_limits(store, job_id, RateLimits(requests=Allowance(60, 60)))
    flood = 3_000
    dead = {f"dead-{number}": 1 for number in range(flood)}
    store.connection.redis.zadd(keys.bucket_alive(BUCKET), dead)
    store.connection.redis.expire(keys.bucket_alive(BUCKET), 60)
    caller = claim_named(store, job_id, "b")

    assert caller.reserve(WORST, EXPECTED) is None

    left = store.connection.redis.zcard(keys.bucket_alive(BUCKET))
    assert 0 < flood - left <= 1_000
