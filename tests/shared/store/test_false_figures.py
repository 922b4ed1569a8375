"""A worker that was taken over writes and reports false amounts. They raise no limit, and stop no
job of others.
"""

from __future__ import annotations

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.commit import Commit, VerifiedAmounts
from handoff_queue.shared.store.daily_budgets import DailyCaps
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.checkpoints import WorstCase
from handoff_queue.shared.types.errors import MalformedMessage
from handoff_queue.shared.types.events import CancelRequested, HandoffFinished, JobStatus
from handoff_queue.shared.types.handoff import HandoffResult
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.limits import MAX_MICROUSD
from handoff_queue.shared.types.usage import Usage
from tests.doubles.jobs import (
    a_job,
    accounts,
    claim,
    finish,
    finish_with,
    finished_event,
    granted_claim,
    handoff_key,
    issue,
    issue_to_a_child,
    model_reply,
    reservation_answer,
    result_of,
    version_of,
)

CALL = WorstCase(400, 100, 60)
DAY_S = 86_400
MONTH = "2026-11"
NUMBERS = ["9" * 400, "9" * 5_000, "-" + "9" * 400, "x", "nan", "1e3", ""]
"""Texts that are not whole number up to 2**53."""
FIGURES = ("turns", "input_tokens", "output_tokens", "usd", "cut_calls", "cut_tokens", "cut_usd")


def today(store: Store) -> int:
    return int(store.connection.now()) // DAY_S


def spend(store: Store, job_id: JobId, handoff_id: str, usage: Usage | None = None) -> None:
    """Make a call in a handoff that ends. Without `usage`, it uses 380 tokens for 50
    micro-dollars.
    """
    issue(store, job_id, handoff_id)
    claimed = granted_claim(store, job_id, handoff_id)
    assert reservation_answer(claimed, CALL) == [b"ok"]
    claimed.reserved = True
    reply = model_reply(300, 80, 50)
    if usage is not None:
        reply = reply.model_copy(update={"usage": usage})
    claimed.checkpoint(reply)
    finish(claimed)


def verify(store: Store, job_id: JobId, *amounts: int) -> None:
    """Commit a decision of a supervisor that has read results with these amounts."""
    verified = VerifiedAmounts(amounts, today(store), amounts)
    version = version_of(store, job_id)
    store.journal.commit(Commit(job_id, version, [CancelRequested(by="test")], verified=verified))
    store.connection.redis.hdel(keys.job(job_id), "cancelled")


def unchecked(**figures: int) -> Usage:
    """Return a usage that a program without our types could send."""
    return Usage.model_construct(**{**Usage().model_dump(), **figures})


@pytest.mark.parametrize("name", ["input_tokens", "output_tokens", "cost_microusd"])
def test_a_negative_amount_of_a_call_lowers_no_counter(store: Store, name: str) -> None:
    job_id = a_job(store, "acme")
    month = keys.schedule_month("news", MONTH)
    store.connection.redis.hset(keys.job(job_id), "month", month)
    spend(store, job_id, "find.1")
    before = store.daily_budgets.read_today("acme")

    spend(store, job_id, "find.2", unchecked(**{name: -1_000}))

    after = accounts(store, job_id)
    assert (after["input_tokens"], after["output_tokens"], after["usd"]) == (300, 80, 50)
    assert store.daily_budgets.read_today("acme").tenant == before.tenant
    assert store.daily_budgets.read_today("acme").installation == before.installation
    assert store.schedules.read_spent_microusd("news", MONTH) == 50


def test_smaller_and_negative_sums_of_results_lower_no_verified_usage(store: Store) -> None:
    job_id = a_job(store, "acme")
    verify(store, job_id, 1, 300, 80, 50)
    for amounts in ((1, 200, 80, 40), (2, -9, -9, -9), (-9, -9, -9, -9)):
        verify(store, job_id, *amounts)

    store.refusals.move_reports()
    verified = store.connection.redis.hgetall(keys.verified_usage(today(store), "acme"))
    assert [int(verified[f"verified_{name}".encode()]) for name in FIGURES[:4]] == [2, 300, 80, 50]


@pytest.mark.parametrize("microusd", [2**53, 2**60, 2**63, 10**300])
def test_a_huge_result_neither_empties_nor_blocks_the_verified_usage(
    store: Store, microusd: int
) -> None:
    store.daily_budgets.set_caps(DailyCaps(tenant_day_usd=MAX_MICROUSD))
    month = keys.schedule_month("news", MONTH)
    for _ in range(3):
        job_id = a_job(store, "acme")
        store.connection.redis.hset(keys.job(job_id), "month", month)
        for _ in range(4):
            verify(store, job_id, 1, 300, 80, microusd)

    store.refusals.move_reports()
    assert store.daily_budgets.read_today("acme").tenant.microusd == MAX_MICROUSD
    assert store.schedules.read_spent_microusd("news", MONTH) == MAX_MICROUSD
    issue(store, job_id, "find.1")
    answer = reservation_answer(granted_claim(store, job_id, "find.1"), CALL)
    assert answer == [b"limit", b"tenant", b"max_usd"]


def test_an_account_that_a_worker_deleted_expires_again(store: Store) -> None:
    job_id = a_job(store, "acme")
    spend(store, job_id, "find.1")
    deleted = (keys.progress(job_id), keys.day(today(store), "acme"), keys.day(today(store)))
    position = store.connection.redis.hgetall(keys.progress(job_id))
    store.connection.redis.delete(*deleted)
    store.connection.redis.hset(keys.progress(job_id), mapping=position)
    store.connection.redis.hset(keys.progress(job_id), "usd", 0)

    verify(store, job_id, 1, 300, 80, 50)

    store.refusals.move_reports()
    assert accounts(store, job_id)["usd"] == 50
    assert all(store.connection.redis.ttl(account) > 0 for account in deleted)


@pytest.mark.parametrize("name", ["input_tokens", "output_tokens", "cost_microusd", "cut_microusd"])
def test_a_result_with_a_negative_figure_cannot_be_read(store: Store, name: str) -> None:
    job_id = a_job(store)
    issue(store, job_id, "find.1")
    result = result_of(granted_claim(store, job_id, "find.1"))
    false = {"usage": unchecked(**{name: -1})}

    with pytest.raises(MalformedMessage, match=f"usage.{name}"):
        HandoffResult.from_json(result.model_copy(update=false).to_json())
    with pytest.raises(MalformedMessage, match=f"usage.{name}"):
        HandoffFinished.from_json(finished_event(result).model_copy(update=false).to_json())


@pytest.mark.parametrize("text", NUMBERS)
def test_a_false_figure_of_a_month_stops_no_schedule(store: Store, text: str) -> None:
    store.connection.redis.set(keys.schedule_month("news", MONTH), text, ex=60)
    store.connection.redis.set(keys.verified_month("news", MONTH), 50, ex=60)

    assert store.schedules.read_spent_microusd("news", MONTH) == 50


@pytest.mark.parametrize("text", NUMBERS)
def test_a_false_figure_of_a_day_is_not_in_the_spending(store: Store, text: str) -> None:
    day = today(store)
    labels = "acme\tresearcher\tsome-model\tteam"
    store.connection.redis.hset(keys.spending(day), mapping={f"usd\t{labels}": text})
    store.connection.redis.expire(keys.spending(day), 60)

    assert store.spending.read_days([day]) == []


@pytest.mark.parametrize("text", NUMBERS)
def test_a_job_with_a_false_figure_is_listed_with_an_unknown_cost(store: Store, text: str) -> None:
    job_id = a_job(store)
    store.connection.redis.hset(keys.progress(job_id), "usd", text)

    (info,) = store.jobs.read([job_id])
    assert (info.status, info.cost_microusd) == (JobStatus.RUNNING, None)


@pytest.mark.parametrize("text", [b"9" * 400, b"9" * 5_000, b"-7", b"x", b"\xff", b""])
def test_false_fields_of_a_handoff_stop_no_reader(store: Store, text: bytes) -> None:
    job_id = a_job(store)
    issue(store, job_id, "find.1")
    claim(store, job_id, "find.1")
    key = handoff_key(store, job_id, HandoffId("find.1"))
    fields = {*store.connection.redis.hkeys(key), *FIGURES, "tools", "heartbeat", "doing", "child"}
    store.connection.redis.hset(key, mapping=dict.fromkeys(fields - {b"role"}, text))

    info = store.jobs.read_handoffs(job_id, [HandoffId("find.1")])[HandoffId("find.1")]

    assert (info.turns, info.usage.input_tokens, info.lease_until) == (0, 0, None)


@pytest.mark.parametrize("text", NUMBERS)
def test_false_figures_of_a_child_job_stop_no_job_above_it(store: Store, text: str) -> None:
    parent = a_job(store)
    issue_to_a_child(store, parent, "team.1")
    child = a_job(store, "default", (parent, HandoffId("team.1")))
    store.connection.redis.hset(keys.progress(child), mapping=dict.fromkeys(FIGURES, text))
    key = handoff_key(store, parent, HandoffId("team.1"))
    store.connection.redis.hset(key, mapping={f"before_{name}": text for name in FIGURES})

    info = store.jobs.read_handoffs(parent, [HandoffId("team.1")])[HandoffId("team.1")]
    claimed = store.claims.open_claim_of_child(parent, HandoffId("team.1"), child)

    assert info.turns == 0
    assert finish_with(claimed, result_of(claimed)).recorded


def test_a_waiting_set_of_another_type_stops_no_statistics(store: Store) -> None:
    store.connection.redis.hset(keys.QUEUES, "analyst", 0)
    store.connection.redis.set(f"{keys.WAITING}analyst", "text", ex=60)

    assert "analyst" not in store.fleet_load.now().waiting


@pytest.mark.parametrize("amount", [2**53 + 1, -7])
def test_a_false_amount_in_the_progress_of_a_job_counts_as_nothing(
    store: Store, amount: int
) -> None:
    job_id = a_job(store)
    store.connection.redis.hset(keys.progress(job_id), mapping=dict.fromkeys(FIGURES, amount))

    (info,) = store.jobs.read([job_id])

    assert (info.status, info.turns, info.usage.input_tokens) == (JobStatus.RUNNING, 0, 0)
