"""Each settled model call counts once in the spending of its day, under its labels."""

from __future__ import annotations

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.metrics import OTHER
from handoff_queue.shared.store.spending_history import DAY_S, Amounts, LabelledSpending
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.handoff import SharedRun
from handoff_queue.shared.types.ids import HandoffId
from handoff_queue.shared.types.usage import Usage
from tests.doubles.jobs import (
    a_job,
    claim,
    expire_lease,
    finish_with,
    granted_claim,
    issue,
    issue_to_a_child,
    model_reply,
    result_of,
)

MODEL = "some-model"
WORST = WorstCase(1_000, 500, 700, MODEL)
KEPT_MS = 90 * DAY_S * 1000


def today(store: Store) -> int:
    return int(store.connection.now()) // DAY_S


def spending(store: Store) -> list[LabelledSpending]:
    return store.spending.read_days([today(store)])


def call(store: Store, tenant: str = "acme", role: str = "researcher", mode: str = "team") -> None:
    """Make one model call of 120 tokens and 5 micro-dollars in a new job."""
    job_id = a_job(store, tenant)
    store.connection.redis.hset(keys.job(job_id), "mode", mode)
    issue(store, job_id, "a.1", role=role)
    claimed = granted_claim(store, job_id, "a.1")
    assert claimed.reserve(WORST) is None
    claimed.checkpoint(model_reply())


def test_calls_count_by_tenant_role_model_and_mode(store: Store) -> None:
    call(store)
    call(store)
    call(store, "globex", "writer", "single")

    acme, other = sorted(spending(store), key=lambda spent: spent.tenant)
    assert acme == LabelledSpending(
        today(store), "acme", "researcher", MODEL, "team", Amounts(2, 10, 200, 40)
    )
    assert other == LabelledSpending(
        today(store), "globex", "writer", MODEL, "single", Amounts(1, 5, 100, 20)
    )


def test_the_sum_of_a_day_is_the_spending_of_its_budget(store: Store) -> None:
    call(store)
    job_id = a_job(store)
    issue(store, job_id, "a.1")
    lost = claim(store, job_id, "a.1", first=WORST)
    expire_lease(store, lost)
    store.due_work.sweep()
    granted_claim(store, job_id, "a.1")  # charges the call that was in flight

    total = Amounts()
    for spent in spending(store):
        total.add(spent.amounts)
    budget = store.daily_budgets.read_today("default").installation
    assert (total.calls, total.usd) == (2, 705)
    assert (budget.microusd, budget.tokens) == (total.usd, total.tokens)


def test_cached_tokens_and_calls_without_a_price_count(store: Store) -> None:
    job_id = a_job(store)
    issue(store, job_id, "a.1")
    claimed = granted_claim(store, job_id, "a.1")
    assert claimed.reserve(WORST) is None
    usage = Usage(input_tokens=200, output_tokens=10, cache_read_tokens=150, cost_microusd=None)
    claimed.checkpoint(model_reply().model_copy(update={"usage": usage}))

    (spent,) = spending(store)
    assert spent.amounts == Amounts(1, 0, 200, 10, 150, 1)
    assert spent.amounts.cached_share == 0.75
    assert spent.mode == ""
    assert Amounts().cached_share is None


def test_the_money_that_the_cache_saved_and_cost_counts(store: Store) -> None:
    job_id = a_job(store)
    issue(store, job_id, "a.1")
    claimed = granted_claim(store, job_id, "a.1")
    assert claimed.reserve(WORST) is None
    used = Usage(input_tokens=200, cache_saved_microusd=70, cache_surcharge_microusd=100)
    claimed.checkpoint(model_reply().model_copy(update={"usage": used}))

    (spent,) = spending(store)
    assert (spent.amounts.saved, spent.amounts.surcharge, spent.amounts.net_saved) == (70, 100, -30)


def test_a_copied_result_counts_with_the_money_that_it_saved(store: Store) -> None:
    job_id = a_job(store)
    issue(store, job_id, "a.1")
    claimed = granted_claim(store, job_id, "a.1")
    shared = SharedRun(job_id=job_id, handoff_id=HandoffId("b.1"), saved_microusd=70)
    copied = result_of(claimed).model_copy(update={"shared": shared, "model": MODEL})
    finish_with(claimed, copied)

    (spent,) = spending(store)
    assert (spent.agent, spent.model) == ("researcher", MODEL)
    assert spent.amounts == Amounts(copies=1, spared=70)


def test_a_call_of_a_child_job_counts_for_the_mode_of_the_request(store: Store) -> None:
    outer = a_job(store)
    store.connection.redis.hset(keys.job(outer), "mode", "adaptive")
    inner = issue_to_a_child(store, outer, "a.1")
    a_job(store, "default", (outer, "a.1"))  # type: ignore[arg-type]
    issue(store, inner, "b.1")
    claimed = granted_claim(store, inner, "b.1")
    assert claimed.reserve(WORST) is None
    claimed.checkpoint(model_reply())

    (spent,) = spending(store)
    assert (spent.mode, spent.amounts.calls) == ("adaptive", 1)


def test_the_spending_of_a_day_expires_after_90_days(store: Store) -> None:
    call(store)
    call(store)

    left_ms = store.connection.redis.pttl(keys.spending(today(store)))
    assert 0 < KEPT_MS - left_ms < 600_000


@pytest.mark.parametrize("garbage", ["a text", {"calls\tacme": "1", "usd\ta\tb\tc\td": "many"}])
def test_unreadable_spending_stops_no_call(store: Store, garbage: str | dict[str, str]) -> None:
    key = keys.spending(today(store))
    if isinstance(garbage, str):
        store.connection.redis.set(key, garbage)
    else:
        store.connection.redis.hset(key, mapping=garbage)
        store.connection.redis.expire(key, 60)
    assert spending(store) == []

    call(store)

    (acme,) = [spent for spent in spending(store) if spent.tenant == "acme"]
    assert acme.amounts.usd == 5


def test_a_day_with_too_many_fields_counts_further_calls_together(store: Store) -> None:
    key = keys.spending(today(store))
    store.connection.redis.hset(
        key, mapping={f"calls\tacme\tr{n}\tm\tteam": 1 for n in range(5_001)}
    )

    store.connection.redis.expire(key, 60)

    call(store, "acme", "writer")
    call(store, "acme", "reviewer")

    assert store.connection.redis.hget(key, f"usd\tacme\t{OTHER}\t{OTHER}\tteam") == b"10"
