"""The pace of a lane in the store: its token buckets, its line, and crashes of its callers. The
rest is in tests/contracts/test_rate_limiter.py.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim import Claim
from handoff_queue.shared.store.claims import ClaimRequest
from handoff_queue.shared.store.rate_limiter import account_of
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.checkpoints import ModelCallFailed, WorstCase
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.message import digest_of
from handoff_queue.shared.types.rate_limits import (
    NOTHING_SAID,
    Allowance,
    Expected,
    RateLimits,
    Wait,
)
from handoff_queue.shared.types.usage import NOTHING_USED
from tests.doubles.jobs import a_job, granted, issue, replied, text_of
from tests.waiting import wait_until

WORST = WorstCase(1_000, 1_000, 0)
LANE = "account:some-model"
EXPECTED = Expected(LANE, 400, 500)
FAILED = ModelCallFailed(error="no", usage=NOTHING_USED)
MANY = Allowance(1_000_000, 1_000_000)
HALF_A_WINDOW_MS = 30_000


@pytest.fixture
def job_id(store: Store) -> JobId:
    return a_job(store)


def a_claim(store: Store, job_id: JobId, name: str) -> Claim:
    issue(store, job_id, f"{name}.1")
    return granted(store, job_id, f"{name}.1", worker=name)


def known(store: Store, job_id: JobId, limits: RateLimits = NOTHING_SAID) -> Claim:
    """Report the lane's first limits."""
    first = a_claim(store, job_id, "first")
    assert first.reserve(WORST, EXPECTED) is None
    first.heard(limits)
    return first


def waits(claimed: Claim, expected: Expected = EXPECTED) -> Wait:
    wait = claimed.reserve(WORST, expected)
    assert wait is not None
    return wait


def scripts_run(store: Store) -> int:
    return int(
        store.connection.redis.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0)
    )


def lane(store: Store) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = store.connection.redis.hgetall(keys.pace(LANE))
    return found


def let_the_one_ahead_be_silent(store: Store) -> None:
    """Make the caller ahead look silent for as long as the others wait."""
    store.connection.redis.hset(keys.pace(LANE), "going_until", 1)


def let_half_a_window_pass(store: Store, calls: list[Claim]) -> None:
    """Make the allowed calls and the records of the buckets look this much older."""
    store.connection.redis.hincrby(keys.pace(LANE), "at", -HALF_A_WINDOW_MS)
    for one in calls:
        assert one.pacing.taken is not None
        one.pacing.taken = replace(
            one.pacing.taken, at_ms=one.pacing.taken.at_ms - HALF_A_WINDOW_MS
        )


@pytest.mark.parametrize(
    "limits", [NOTHING_SAID, RateLimits(requests=MANY)], ids=["unlimited", "limited"]
)
def test_a_turn_costs_two_round_trips_and_one_more_to_report_limits(
    store: Store, job_id: JobId, limits: RateLimits
) -> None:
    claimed = known(store, job_id, limits)
    before = scripts_run(store)
    for _ in range(5):
        claimed.checkpoint(replied(stop_reason="end_turn"))
        assert claimed.reserve(WORST, EXPECTED) is None
        claimed.heard(limits)
    assert scripts_run(store) - before == (10 if limits == NOTHING_SAID else 15)


def test_a_call_that_was_refused_gives_back_nothing_that_the_server_has_not_left(
    store: Store, job_id: JobId
) -> None:
    known(store, job_id).refused("rate limit", 0, RateLimits(input_tokens=Allowance(60_000, 2_000)))
    first = a_claim(store, job_id, "b")
    wait_until(lambda: first.reserve(WORST, EXPECTED) is None, what="the probe")
    first.refused("rate limit", 0, RateLimits(input_tokens=Allowance(60_000, 0)))
    first.checkpoint(FAILED)
    assert float(lane(store)[b"input_level"]) < EXPECTED.input_tokens


def test_another_lane_is_not_held_back(store: Store, job_id: JobId) -> None:
    known(store, job_id).refused("rate limit", 60)
    assert (
        a_claim(store, job_id, "other").reserve(WORST, Expected("account:another-model", 400, 500))
        is None
    )


def test_the_first_call_is_allowed_together_with_the_claim(store: Store, job_id: JobId) -> None:
    issue(store, job_id, "a.1", "b.1")
    a, b = (
        store.claims.claim(
            ClaimRequest(job_id, HandoffId(name), digest_of(text_of(name)), "w", WORST, EXPECTED)
        )
        for name in ("a.1", "b.1")
    )
    assert (a.reserved, b.reserved) == (True, False)
    assert waits(b).why == "first call"
    assert a.reserve(WORST, EXPECTED) is None
    a.heard(NOTHING_SAID)
    assert b.reserve(WORST, EXPECTED) is None


def test_a_wait_for_the_provider_reserves_no_budget(store: Store) -> None:
    job_id = a_job(store, max_turns=2)
    known(store, job_id).refused("rate limit", 60)
    waits(a_claim(store, job_id, "waiting"))
    assert (
        a_claim(store, job_id, "other").reserve(WORST, Expected("account:another-model", 1, 1))
        is None
    )


def test_a_silent_first_call_delays_others_only_briefly(store: Store, job_id: JobId) -> None:
    assert a_claim(store, job_id, "silent").reserve(WORST, EXPECTED) is None
    waits(second := a_claim(store, job_id, "second"))
    let_the_one_ahead_be_silent(store)
    assert second.reserve(WORST, EXPECTED) is None
    assert a_claim(store, job_id, "third").reserve(WORST, EXPECTED) is None


def test_one_other_call_follows_a_probe_whose_process_died(store: Store, job_id: JobId) -> None:
    first, second, third = (
        known(store, job_id),
        a_claim(store, job_id, "b"),
        a_claim(store, job_id, "c"),
    )
    first.refused("rate limit", 0.01)
    wait_until(lambda: second.reserve(WORST, EXPECTED) is None, what="the probe")
    let_the_one_ahead_be_silent(store)
    assert third.reserve(WORST, EXPECTED) is None
    assert waits(first).why == "rate limit"


def test_a_probe_that_breaks_is_followed_by_the_next_at_once(store: Store, job_id: JobId) -> None:
    first, second = known(store, job_id), a_claim(store, job_id, "b")
    first.refused("rate limit", 0.01)
    wait_until(lambda: second.reserve(WORST, EXPECTED) is None, what="the probe")
    waits(first)
    second.checkpoint(FAILED)
    assert first.reserve(WORST, EXPECTED) is None


def test_calls_that_were_refused_together_count_once(store: Store, job_id: JobId) -> None:
    known(store, job_id)
    volley = [a_claim(store, job_id, f"v-{letter}") for letter in "abcdef"]
    assert all(one.reserve(WORST, EXPECTED) is None for one in volley)
    for one in volley:
        one.refused("rate limit", None)
    assert waits(volley[0]).seconds <= 1


def test_a_refusal_older_than_the_last_success_is_ignored(store: Store, job_id: JobId) -> None:
    first, late, probe = (
        known(store, job_id),
        a_claim(store, job_id, "late"),
        a_claim(store, job_id, "probe"),
    )
    assert late.reserve(WORST, EXPECTED) is None
    first.refused("rate limit", 0.01)
    wait_until(lambda: probe.reserve(WORST, EXPECTED) is None, what="the probe")
    probe.heard(NOTHING_SAID)
    late.refused("rate limit", 60)
    assert a_claim(store, job_id, "next").reserve(WORST, EXPECTED) is None


def test_input_tokens_are_paced_and_the_unused_part_flows_back(store: Store, job_id: JobId) -> None:
    first = known(store, job_id, RateLimits(input_tokens=Allowance(60_000, 1_500)))
    second, third = a_claim(store, job_id, "b"), a_claim(store, job_id, "c")
    assert second.reserve(WORST, EXPECTED) is None
    assert 0.1 < waits(third).seconds <= 0.4, (
        "1,000 tokens a second, which are kept back, some 100 more left, 400 wanted"
    )
    second.checkpoint(replied(input_tokens=10, output_tokens=5))
    assert third.reserve(WORST, EXPECTED) is None
    assert first.reserve(WORST, Expected(LANE, 1, 1)) is None


def test_a_call_larger_than_the_limit_goes_when_the_bucket_is_full(
    store: Store, job_id: JobId
) -> None:
    known(store, job_id, RateLimits(input_tokens=Allowance(300, 300)))
    assert a_claim(store, job_id, "b").reserve(WORST, EXPECTED) is None
    assert waits(a_claim(store, job_id, "c")).seconds > 50


def test_expected_output_follows_earlier_calls(store: Store, job_id: JobId) -> None:
    first = known(store, job_id, RateLimits(output_tokens=Allowance(600, 600)))
    first.checkpoint(replied(output_tokens=20))
    calls = 0
    while (
        calls < 50
        and a_claim(store, job_id, f"n-{chr(97 + calls % 26)}{calls // 26}").reserve(
            WORST, EXPECTED
        )
        is None
    ):
        calls += 1
    assert 28 <= calls <= 31, "20 tokens each"


def test_the_later_in_line_wait_longer_and_go_later(store: Store, job_id: JobId) -> None:
    known(store, job_id, RateLimits(requests=Allowance(60, 1)))
    line = [a_claim(store, job_id, name) for name in ("b", "c", "d")]
    promised = [waits(one).seconds for one in line]
    assert promised == sorted(promised)
    assert 1.5 < promised[2] <= 3
    assert waits(line[2]).seconds > 1.5, "who asks again keeps its place"


def test_a_dead_caller_in_line_delays_no_other(store: Store, job_id: JobId) -> None:
    known(store, job_id, RateLimits(requests=Allowance(60, 1)))
    dead, alive = a_claim(store, job_id, "dead"), a_claim(store, job_id, "alive")
    waits(dead)
    assert waits(alive).seconds > 1
    store.connection.redis.zadd(f"{keys.pace(LANE)}:alive", {dead.pacing.member: 1})
    assert waits(alive).seconds <= 1


def test_a_servers_lower_remainder_overrides_ours(store: Store, job_id: JobId) -> None:
    first = known(store, job_id, RateLimits(requests=Allowance(60, 60)))
    first.heard(RateLimits(requests=Allowance(60, 0)))
    late = [a_claim(store, job_id, name) for name in ("b", "c", "d", "e")]
    assert sum(one.reserve(WORST, EXPECTED) is None for one in late) <= 2, (
        "somebody else uses the same account"
    )


def test_a_bucket_of_the_server_that_was_full_has_not_refilled_while_a_burst_was_on_its_way(
    store: Store, job_id: JobId
) -> None:
    known(store, job_id, RateLimits(requests=Allowance(6, 4)))
    burst = [a_claim(store, job_id, name) for name in ("b", "c", "d")]
    assert all(one.reserve(WORST, EXPECTED) is None for one in burst)
    let_half_a_window_pass(store, burst)
    burst[-1].heard(RateLimits(requests=Allowance(6, 0)))
    late = [a_claim(store, job_id, name) for name in ("e", "f", "g")]
    assert [one.reserve(WORST, EXPECTED) is None for one in late] == [False, False, False], (
        "nobody goes on what may have been rounded off"
    )


def test_a_new_limit_counts_at_once(store: Store, job_id: JobId) -> None:
    first = known(store, job_id, RateLimits(requests=Allowance(60, 0)))
    second = a_claim(store, job_id, "b")
    waits(second)
    first.heard(RateLimits(requests=Allowance(600, 590)))
    assert second.reserve(WORST, EXPECTED) is None


def test_a_call_that_was_never_made_returns_its_share(store: Store, job_id: JobId) -> None:
    known(store, job_id, RateLimits(requests=Allowance(60, 2)))
    issue(store, job_id, "a.1")
    claimed = store.claims.claim(
        ClaimRequest(job_id, HandoffId("a.1"), digest_of(text_of("a.1")), "w", WORST, EXPECTED)
    )
    assert claimed.reserved
    claimed.release()
    assert a_claim(store, job_id, "b").reserve(WORST, EXPECTED) is None


def test_an_account_is_named_without_its_key() -> None:
    named = account_of("anthropic", None, "sk-secret")
    assert "secret" not in named
    assert named != account_of("anthropic", None, "sk-another")
    assert named == account_of("anthropic", None, "sk-secret")
