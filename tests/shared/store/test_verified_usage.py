"""A worker that lowers a counter of money does not raise a limit: the accounts count at least the
results that supervisors have verified.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.commit import Commit, VerifiedAmounts
from handoff_queue.shared.store.daily_budgets import DailyCaps
from handoff_queue.shared.store.redis import connection, script
from handoff_queue.shared.store.redis.script import Script, build_source
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.budget_measures import AMOUNTS, MONEY
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.events import CancelRequested
from handoff_queue.shared.types.ids import HandoffId, JobId
from tests.doubles.jobs import (
    a_job,
    accounts,
    finish,
    granted_claim,
    issue,
    issue_to_a_child,
    model_reply,
    reservation_answer,
    version_of,
)

CALL = WorstCase(400, 100, 60)
USED = (1, 300, 80, 50)
"""Turns, input tokens, output tokens and micro-dollars of one call."""
DAY_S = 86_400


def today(store: Store) -> int:
    return int(store.connection.now()) // DAY_S


def verify(store: Store, job_id: JobId, amounts: tuple[int, ...] = USED) -> None:
    """Commit a decision of a supervisor that has read these results."""
    verified = VerifiedAmounts(amounts, today(store), amounts)
    version = version_of(store, job_id)
    store.journal.commit(Commit(job_id, version, [CancelRequested(by="test")], verified=verified))
    store.connection.redis.hdel(keys.job(job_id), "cancelled")


def spend(store: Store, job_id: JobId) -> None:
    """Make a call of USED in a handoff that ends."""
    issue(store, job_id, "find.1")
    claimed = granted_claim(store, job_id, "find.1")
    assert reservation_answer(claimed, CALL) == [b"ok"]
    claimed.reserved = True
    claimed.checkpoint(model_reply(*USED[1:]))
    finish(claimed)


def answer_to_a_call(store: Store, job_id: JobId) -> list[bytes]:
    """Return the answer to a further call of the job."""
    issue(store, job_id, "read.1")
    return reservation_answer(granted_claim(store, job_id, "read.1"), CALL)


def lower(store: Store, account: str, change: str) -> None:
    """Change an account as a worker can."""
    if change == "expire":
        store.connection.redis.delete(account)
    elif change == "lower":
        for name in ("turns", "input_tokens", "output_tokens", "usd"):
            store.connection.redis.hincrby(account, name, -1_000_000)
    else:
        store.connection.redis.hset(account, mapping={"usd": change, "input_tokens": change})


@pytest.mark.parametrize("change", ["lower", "expire", "x", "nan", "-1e999"])
def test_a_lowered_counter_of_the_tenants_day_raises_no_cap(store: Store, change: str) -> None:
    store.daily_budgets.set_caps(DailyCaps(tenant_day_usd=100))
    job_id = a_job(store, "acme")
    spend(store, job_id)
    verify(store, job_id)
    lower(store, keys.day(today(store), "acme"), change)

    assert answer_to_a_call(store, job_id) == [b"limit", b"tenant", b"max_usd"]
    assert store.daily_budgets.read_today("acme").tenant.microusd == 50


@pytest.mark.parametrize("change", ["lower", "expire"])
def test_a_lowered_counter_of_the_installation_raises_no_cap(store: Store, change: str) -> None:
    store.daily_budgets.set_caps(DailyCaps(day_tokens=800))
    job_id = a_job(store)
    spend(store, job_id)
    verify(store, job_id)
    lower(store, keys.day(today(store)), change)

    assert answer_to_a_call(store, job_id) == [b"limit", b"installation", b"max_tokens"]
    assert store.daily_budgets.read_today("default").installation.tokens == 380


def test_a_lowered_counter_of_a_job_raises_no_limit(store: Store) -> None:
    job_id = a_job(store, max_usd=100)
    spend(store, job_id)
    verify(store, job_id)
    lower(store, keys.progress(job_id), "lower")

    assert answer_to_a_call(store, job_id) == [b"limit", b"job", b"max_usd"]


def test_results_of_a_child_job_count_once_in_the_books_of_the_day(store: Store) -> None:
    parent = a_job(store, "acme")
    issue_to_a_child(store, parent, "team.1")
    child = a_job(store, "acme", (parent, HandoffId("team.1")))
    spend(store, child)
    verify(store, child)
    verify(store, parent)

    usage = store.connection.redis.hgetall(keys.verified_usage(today(store), "acme"))
    assert usage[b"verified_usd"] == b"50"


def test_a_repeated_booking_changes_nothing(store: Store) -> None:
    job_id = a_job(store, "acme")
    spend(store, job_id)
    verify(store, job_id, (1, 200, 50, 30))
    for _ in range(3):
        verify(store, job_id)

    usage = store.connection.redis.hgetall(keys.verified_usage(today(store), "acme"))
    assert usage == {
        b"verified_turns": b"1",
        b"verified_input_tokens": b"300",
        b"verified_output_tokens": b"80",
        b"verified_usd": b"50",
    }


def test_amounts_of_another_day_are_not_booked_today(store: Store) -> None:
    job_id = a_job(store, "acme")
    spend(store, job_id)
    verified = VerifiedAmounts(USED, today(store), (0, 0, 0, 0))
    version = version_of(store, job_id)
    store.journal.commit(Commit(job_id, version, [CancelRequested()], verified=verified))

    assert not store.connection.redis.exists(keys.verified_usage(today(store), "acme"))


def test_a_lowered_counter_is_raised_again_and_is_in_the_audit(store: Store) -> None:
    job_id = a_job(store)
    spend(store, job_id)
    lower(store, keys.progress(job_id), "lower")

    verify(store, job_id)

    assert accounts(store, job_id)["usd"] == 50
    assert store.refusals.move_reports() == 1
    entry = store.audit.list_newest(10)[0]
    assert entry.subject == f"counter {keys.progress(job_id)}"
    assert "usd was -999950, and the results have used 50" in entry.detail


def test_honest_counters_are_not_in_the_audit(store: Store) -> None:
    job_id = a_job(store)
    spend(store, job_id)
    verify(store, job_id)

    assert store.refusals.move_reports() == 0


def test_the_month_of_a_schedule_counts_at_least_the_results(store: Store) -> None:
    month = keys.schedule_month("news", "2026-11")
    job_id = a_job(store)
    store.connection.redis.hset(keys.job(job_id), "month", month)
    spend(store, job_id)
    verify(store, job_id)
    store.connection.redis.incrby(month, -1_000)

    assert store.schedules.read_spent_microusd("news", "2026-11") == 50


def test_an_amount_after_the_money_does_not_count_as_money_of_the_month(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    month = keys.schedule_month("news", "2026-11")
    job_id = a_job(store)
    store.connection.redis.hset(keys.job(job_id), "month", month)
    spend(store, job_id)
    store.connection.redis.decrby(month, 50)
    further = replace(MONEY, name="pages", total="pages", reserved="r_pages")
    monkeypatch.setattr(script, "AMOUNTS", (*AMOUNTS, further))
    monkeypatch.setattr(script, "_read_parts", script._read_parts.__wrapped__)
    monkeypatch.setattr(connection, "load_script", lambda name: Script(build_source(name)))

    verify(store, job_id, (*USED, 0))

    assert store.schedules.read_spent_microusd("news", "2026-11") == 50
