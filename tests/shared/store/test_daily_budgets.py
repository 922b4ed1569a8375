"""The daily caps of a tenant and of the installation hold over all jobs. A call counts on the day
of its start.
"""

from __future__ import annotations

from typing import Any

import pytest

from handoff_queue.shared.store.claim import HandoffClaim
from handoff_queue.shared.store.daily_budgets import DailyCaps
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.errors import LimitReached
from tests.doubles.jobs import (
    a_job,
    expire_lease,
    finish,
    granted_claim,
    handoff_key,
    issue,
    model_reply,
    reservation_verdict,
)

WORST = WorstCase(500, 100, 50)
DAY_MS = 86_400_000


def claim_of(
    store: Store, tenant: str = "default", max_microusd: int | None = None, **limits: int
) -> HandoffClaim:
    job_id = a_job(store, tenant, **limits)
    issue(store, job_id, "find.1", max_microusd=max_microusd)
    return granted_claim(store, job_id, "find.1")


def day_account(store: Store, tenant: str | None = None, days_ago: int = 0) -> dict[str, int]:
    key = f"handoff:day:{int(store.connection.now() * 1000) // DAY_MS - days_ago}" + (
        f":{tenant}" if tenant else ""
    )
    return {
        name.decode(): int(value) for name, value in store.connection.redis.hgetall(key).items()
    }


@pytest.mark.parametrize(
    ("caps", "level", "limit"),
    [
        (DailyCaps(day_usd=99), "installation", "max_usd"),
        (DailyCaps(day_tokens=1_199), "installation", "max_tokens"),
        (DailyCaps(tenant_day_usd=99), "tenant", "max_usd"),
        (DailyCaps(tenant_day_tokens=1_199), "tenant", "max_tokens"),
    ],
)
def test_a_cap_of_the_day_holds_over_all_jobs_and_is_named(
    store: Store, caps: DailyCaps, level: str, limit: str
) -> None:
    store.daily_budgets.set_caps(caps)
    first, second = claim_of(store), claim_of(store)
    first.reserve(WORST)
    assert reservation_verdict(second, WORST) == b"wait", "others' reservations may come back"
    first.checkpoint(model_reply(500, 100, 50))

    with pytest.raises(LimitReached) as reached:
        second.reserve(WORST)

    assert (reached.value.level, reached.value.limit) == (level, limit)


def test_a_tenant_with_a_spent_day_does_not_affect_other_tenants(store: Store) -> None:
    store.daily_budgets.set_caps(DailyCaps(tenant_day_usd=50))
    for tenant in ("ours", "theirs"):
        claim_of(store, tenant).reserve(WORST)

    assert reservation_verdict(claim_of(store, "ours"), WORST) == b"wait"


def test_a_reservation_holds_at_all_levels_or_at_none(store: Store) -> None:
    store.daily_budgets.set_caps(DailyCaps(tenant_day_tokens=700))
    first, second = claim_of(store, "ours"), claim_of(store, "ours")
    first.reserve(WORST)
    assert reservation_verdict(second, WORST) == b"wait"

    assert (
        day_account(store)["reserved_tokens"]
        == day_account(store, "ours")["reserved_tokens"]
        == 600
    )
    first.checkpoint(model_reply(100, 20, 5))
    finish(first)
    assert day_account(store)["reserved_tokens"] == day_account(store, "ours")["reserved_usd"] == 0
    assert day_account(store)["usd"] == day_account(store, "ours")["usd"] == 5


def test_a_handoffs_cost_limit_holds_for_it_alone_over_all_its_claims(store: Store) -> None:
    job_id = a_job(store)
    issue(store, job_id, "find.1", "look.1", max_microusd=99)
    first = granted_claim(store, job_id, "find.1")
    first.reserve(WORST)
    expire_lease(store, first)
    second = granted_claim(store, job_id, "find.1", "w2")

    with pytest.raises(LimitReached, match="max_usd") as reached:
        second.reserve(WORST)

    assert reached.value.level == "handoff"
    granted_claim(store, job_id, "look.1").reserve(WORST)


def test_a_call_over_midnight_is_charged_to_the_day_of_its_reservation(
    store: Store,
) -> None:
    store.daily_budgets.set_caps(DailyCaps(day_usd=60))
    first = claim_of(store)
    first.reserve(WORST)
    move_to_yesterday(store, first)

    first.checkpoint(model_reply(100, 20, 5))
    finish(first)

    assert (
        day_account(store, days_ago=1)["usd"],
        day_account(store, days_ago=1)["reserved_usd"],
    ) == (5, 0)
    assert day_account(store).get("usd", 0) == 0
    claim_of(store).reserve(WORST)


def move_to_yesterday(store: Store, claimed: HandoffClaim) -> None:
    """Move the reservations of today to yesterday, because a test cannot set the clock of Redis."""
    redis: Any = store.connection.redis
    today = int(store.connection.now() * 1000) // DAY_MS
    for of in ("", ":default"):
        redis.rename(f"handoff:day:{today}{of}", f"handoff:day:{today - 1}{of}")
    redis.hset(handoff_key(store, claimed.job_id, claimed.handoff_id), "r_day", today - 1)


def test_the_accounts_of_a_day_expire(store: Store) -> None:
    first = claim_of(store, "ours")
    first.reserve(WORST)
    first.checkpoint(model_reply())

    assert all(
        store.connection.redis.pttl(key) > 0
        for key in store.connection.redis.scan_iter("handoff:day:*")
    )


def test_caps_hold_until_they_are_set_again(store: Store) -> None:
    store.daily_budgets.set_caps(DailyCaps(day_usd=10))
    claimed = claim_of(store)
    assert reservation_verdict(claimed, WORST) == b"max_usd"
    store.daily_budgets.set_caps(DailyCaps(day_tokens=10**6))

    claimed.reserve(WORST)


def test_a_spent_cap_is_named_with_the_time_of_its_renewal(store: Store) -> None:
    assert store.daily_budgets.find_refusal("ours") is None
    store.daily_budgets.set_caps(DailyCaps(tenant_day_usd=5, day_tokens=10**6))
    claimed = claim_of(store, "ours")
    claimed.reserve(WorstCase(1, 1, 5))
    assert store.daily_budgets.find_refusal("ours") is None, "set aside is not spent"
    claimed.checkpoint(model_reply(1, 1, 5))
    finish(claimed)

    message = str(store.daily_budgets.find_refusal("ours"))
    assert message.startswith(
        "the budget of tenant ours for today is spent ($0.000005 of $0.000005); there is more at"
        " 00:00 UTC, in "
    )
    assert store.daily_budgets.find_refusal("theirs") is None


@pytest.mark.parametrize(
    ("caps", "more", "message"),
    [
        (
            DailyCaps(day_usd=99),
            DailyCaps(day_usd=100),
            "installation for today is spent ($0.00005 of $0.000099, and a call may need"
            " $0.00005);",
        ),
        (
            DailyCaps(tenant_day_tokens=700),
            DailyCaps(tenant_day_tokens=720),
            "ours for today is spent (120 of 700 tokens, and a call may need 600);",
        ),
    ],
)
def test_a_cap_that_is_too_low_for_any_call_counts_as_spent_until_it_is_raised(
    store: Store, caps: DailyCaps, more: DailyCaps, message: str
) -> None:
    store.daily_budgets.set_caps(caps)
    first = claim_of(store, "ours")
    first.reserve(WORST)
    first.checkpoint(model_reply(100, 20, 50))
    assert store.daily_budgets.find_refusal("ours") is None, (
        "nobody has asked for more than is left"
    )
    second = claim_of(store, "ours")

    assert {reservation_verdict(second, WORST) for _ in range(2)} <= {b"max_usd", b"max_tokens"}

    assert message in (str(store.daily_budgets.find_refusal("ours")))
    assert all(
        store.connection.redis.pttl(key) > 0
        for key in store.connection.redis.scan_iter("handoff:day:*")
    )
    store.daily_budgets.set_caps(more)
    assert store.daily_budgets.find_refusal("ours") is None
    second.reserve(WORST)


def test_the_smallest_refused_amount_counts_while_it_is_too_large(
    store: Store,
) -> None:
    store.daily_budgets.set_caps(DailyCaps(day_usd=99))
    for microusd in (300, 200, 250):
        assert reservation_verdict(claim_of(store), WorstCase(1, 1, microusd)) == b"max_usd"
    assert store.daily_budgets.read_today("ours").installation.needed_microusd == 200

    store.daily_budgets.set_caps(DailyCaps(day_usd=220))
    assert reservation_verdict(claim_of(store), WorstCase(1, 1, 250)) == b"max_usd"

    assert store.daily_budgets.read_today("ours").installation.needed_microusd == 250
    assert store.daily_budgets.find_refusal("ours"), (
        "what asks for 200 would fit, and was not what came"
    )


def test_late_calls_and_closing_calls_do_not_count_as_the_cost_of_a_new_job(
    store: Store,
) -> None:
    store.daily_budgets.set_caps(DailyCaps(day_usd=99))
    late, job_id = claim_of(store), a_job(store)
    late.reserve(WORST)
    late.checkpoint(model_reply(100, 20, 5))
    issue(store, job_id, "assessor.1", role="assessor", group=None)
    for claimed in (late, granted_claim(store, job_id, "assessor.1")):
        assert reservation_verdict(claimed, WorstCase(1, 1, 95)) == b"max_usd"

    assert store.daily_budgets.find_refusal("ours") is None


def test_a_call_that_waits_for_other_reservations_uses_no_day_budget(store: Store) -> None:
    store.daily_budgets.set_caps(DailyCaps(day_usd=99))
    claim_of(store).reserve(WORST)
    assert reservation_verdict(claim_of(store), WORST) == b"wait"

    assert store.daily_budgets.find_refusal("ours") is None


@pytest.mark.parametrize(
    ("role", "reason"), [("researcher", b"max_turns"), ("assessor", b"ok"), ("synthesizer", b"ok")]
)
def test_the_closing_reserve_is_for_the_closing_roles(
    store: Store, role: str, reason: bytes
) -> None:
    job_id = a_job(store, max_turns=2, keep_turns=1)
    issue(store, job_id, "find.1", "look.1", role=role)
    first = granted_claim(store, job_id, "find.1")
    first.reserve(WORST)
    first.checkpoint(model_reply())

    assert reservation_verdict(granted_claim(store, job_id, "look.1"), WORST) == reason


def test_the_spent_amount_is_shown_next_to_the_limit(store: Store) -> None:
    store.daily_budgets.set_caps(DailyCaps(tenant_day_usd=500_000, day_tokens=10**6))
    claimed = claim_of(store, "ours")
    claimed.reserve(WORST)
    claimed.checkpoint(model_reply(1_000, 200, 50))
    today = store.daily_budgets.read_today("ours")

    assert str(today.installation) == "$0.00005, 1,200 of 1,000,000 tokens"
    assert str(today.tenant) == "$0.00005 of $0.5, 1,200 tokens"
    assert str(store.daily_budgets.read_today("theirs").tenant) == "$0 of $0.5, 0 tokens"
    assert 0 < today.left_s <= DAY_MS / 1000
