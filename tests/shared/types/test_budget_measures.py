"""Each measure of the budgets has its limit, its amounts and its words."""

from __future__ import annotations

import pytest

from handoff_queue.shared.store.handoff_info import parse_handoff_info
from handoff_queue.shared.types.budget_measures import AMOUNTS, MEASURES, Amount, Measure
from handoff_queue.shared.types.handoff import StopReason
from handoff_queue.shared.types.limits import BudgetLimits
from handoff_queue.supervisor.lifecycle.job_budget import format_amount as amount_in_words
from handoff_queue.supervisor.lifecycle.result_texts import STOPPED_BY


def test_each_limit_of_a_budget_has_a_measure() -> None:
    assert set(BudgetLimits.model_fields) == {measure.limit for measure in MEASURES}


def test_no_two_measures_share_a_name() -> None:
    for kind in ("name", "limit", "option", "stop_reason"):
        assert len({getattr(measure, kind) for measure in MEASURES}) == len(MEASURES), kind
    assert len({amount.reserved for amount in AMOUNTS}) == len(AMOUNTS)


@pytest.mark.parametrize("measure", MEASURES)
def test_a_measure_counts_amounts_of_every_call_and_has_words(measure: Measure) -> None:
    assert set(measure.amounts) <= set(AMOUNTS)
    assert amount_in_words(measure.limit, 12) == measure.text(12)
    assert measure.stop_reason in STOPPED_BY


@pytest.mark.parametrize("measure", MEASURES)
def test_the_limit_that_redis_names_is_a_stop_reason_of_the_handoff(measure: Measure) -> None:
    assert StopReason(measure.stored_limit) is measure.stop_reason


@pytest.mark.parametrize("amount", AMOUNTS)
def test_the_account_of_a_handoff_shows_the_total_of_each_amount(amount: Amount) -> None:
    info = parse_handoff_info({amount.total.encode(): b"123"})

    assert amount.used(info) == 123
    assert [each.used(info) for each in AMOUNTS if each != amount] == [0] * (len(AMOUNTS) - 1)
