"""A quote follows from the plan and earlier jobs. About 90 % of jobs stay below its upper bound."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.types.ids import StepId
from handoff_queue.supervisor.quoting.cost_simulation import (
    COLD,
    MIN_SCORES,
    CostHistory,
    CostSample,
    QuoteScore,
    RemainingWork,
    compute_quote,
    compute_score,
)
from tests.doubles.random_costs import CostSimulation
from tests.property_settings import draws

A, B, C = (StepId(name) for name in "abc")
CHAIN = RemainingWork({A: ("researcher", ()), B: ("writer", (A,))}, ("assessor",))
SIDE_BY_SIDE = RemainingWork({A: ("researcher", ()), B: ("researcher", ()), C: ("writer", (A, B))})
ALWAYS_THE_SAME = CostHistory(
    {
        "researcher": [CostSample(100, 10.0)],
        "writer": [CostSample(30, 4.0)],
        "assessor": [CostSample(7, 1.0)],
    }
)


def test_steps_that_wait_for_each_other_take_their_time_one_after_the_other() -> None:
    quote = compute_quote(CHAIN, ALWAYS_THE_SAME, 0, 0.0, "x")

    assert quote.seconds
    assert quote.microusd
    assert (quote.seconds.likely, quote.microusd.likely) == (15.0, 137.0)


def test_parallel_steps_take_the_longest_time_and_cost_the_sum() -> None:
    quote = compute_quote(SIDE_BY_SIDE, ALWAYS_THE_SAME, 0, 0.0, "x")

    assert quote.seconds
    assert quote.microusd
    assert (quote.seconds.likely, quote.microusd.likely) == (14.0, 230.0)


def test_earlier_spending_is_part_of_the_quote() -> None:
    quote = compute_quote(CHAIN, ALWAYS_THE_SAME, 1_000, 60.0, "x")

    assert quote.seconds
    assert quote.microusd
    assert (quote.seconds.likely, quote.microusd.likely) == (75.0, 1_137.0)


def test_without_history_there_is_no_figure() -> None:
    quote = compute_quote(CHAIN, CostHistory({}), 0, 0.0, "x")

    assert (quote.microusd, quote.seconds) == (None, None)


def test_a_specialist_without_history_is_estimated_like_the_others() -> None:
    quote = compute_quote(CHAIN, CostHistory({"researcher": [CostSample(100, 10.0)]}), 0, 0.0, "x")

    assert quote.seconds
    assert quote.seconds.likely == 30.0


def test_an_unknown_price_makes_no_quote_of_the_cost() -> None:
    past = CostHistory(
        {
            "researcher": [CostSample(None, 10.0)],
            "writer": [CostSample(30, 4.0)],
            "assessor": [CostSample(7, 1.0)],
        }
    )
    quote = compute_quote(CHAIN, past, 0, 0.0, "x")

    assert quote.microusd is None
    assert quote.seconds is not None


def test_steps_and_roles_with_batches_cost_half() -> None:
    work = replace(CHAIN, then=("assessor", "judge"), is_batched=True)
    past = CostHistory({**ALWAYS_THE_SAME.samples, "judge": [CostSample(11, 1.0)]})
    quote = compute_quote(work, past, 0, 0.0, "x")

    assert quote.microusd
    assert (quote.microusd.likely, quote.half_price_microusd) == (68.5 + 5.5, 68.5 + 5.5)


def test_searches_of_the_provider_cost_the_full_price_in_a_job_with_batches() -> None:
    """30 of 100 micro-dollars are for searches, and 70 for tokens."""
    live = CostHistory({"researcher": [CostSample(100, 10.0, server_tools_microusd=30)]})
    batched = CostHistory({"researcher": [CostSample(65, 10.0, 35, server_tools_microusd=30)]})
    work = replace(CHAIN, is_batched=True)

    for past in (live, batched):
        quote = compute_quote(work, past, 0, 0.0, "x")
        assert quote.microusd
        assert (quote.microusd.likely, quote.half_price_microusd) == (3 * 65.0, 3 * 35.0)


def test_a_specialist_without_batches_costs_the_full_price_in_a_job_with_batches() -> None:
    work = replace(CHAIN, is_batched=True, live=frozenset({"writer"}))
    quote = compute_quote(work, ALWAYS_THE_SAME, 0, 0.0, "x")

    assert quote.microusd
    assert (quote.microusd.likely, quote.half_price_microusd) == (53.5 + 30.0, 53.5)


def test_a_handoff_that_went_through_batches_counts_at_the_price_of_the_quoted_job() -> None:
    live = CostHistory({"researcher": [CostSample(100, 10.0)]})
    batched = CostHistory({"researcher": [CostSample(50, 10.0, batch_saved_microusd=50)]})

    for work in (CHAIN, replace(CHAIN, is_batched=True)):
        of_live, of_batched = (compute_quote(work, past, 0, 0.0, "x") for past in (live, batched))
        assert of_live == of_batched


def test_a_job_with_batches_has_its_deadline_and_its_time_without_batches() -> None:
    work = replace(CHAIN, is_batched=True, deadline_s=3_600)
    quote = compute_quote(work, ALWAYS_THE_SAME, 0, 0.0, "x")
    live = compute_quote(CHAIN, ALWAYS_THE_SAME, 0, 0.0, "x")

    assert (quote.seconds, quote.deadline_s, quote.live_seconds) == (None, 3_600, live.seconds)
    assert (live.deadline_s, live.live_seconds) == (None, None)


def test_the_quote_of_a_job_with_batches_is_scored_by_its_cost_alone() -> None:
    quote = compute_quote(replace(CHAIN, is_batched=True), ALWAYS_THE_SAME, 0, 0.0, "x")
    assert quote.microusd
    cost = round(2 * quote.microusd.likely)
    score = compute_score(quote, cost, 40_000.0)
    assert score
    assert (score.cost_likely, score.time_likely) == (2.0, None)

    scored = replace(ALWAYS_THE_SAME, scores=[score] * MIN_SCORES)
    live, plain = (compute_quote(CHAIN, past, 0, 0.0, "x") for past in (scored, ALWAYS_THE_SAME))
    assert live.microusd
    assert plain.microusd
    assert live.microusd.likely == 2 * plain.microusd.likely
    assert live.seconds == plain.seconds


def test_a_live_job_has_no_part_at_half_price() -> None:
    assert compute_quote(CHAIN, ALWAYS_THE_SAME, 0, 0.0, "x").half_price_microusd is None


def test_with_few_scored_quotes_the_upper_bound_is_wider() -> None:
    quote = compute_quote(CHAIN, ALWAYS_THE_SAME, 0, 0.0, "x")

    assert quote.seconds
    assert quote.seconds.most == COLD * 15.0


def test_quotes_that_were_too_low_raise_later_quotes() -> None:
    scores = [QuoteScore(2.0, 2.0, 3.0, 3.0)] * MIN_SCORES
    quote = compute_quote(CHAIN, CostHistory(ALWAYS_THE_SAME.samples, scores), 0, 0.0, "x")

    assert quote.seconds
    assert quote.microusd
    assert (quote.microusd.most, quote.seconds.most) == (274.0, 45.0)


def test_the_same_job_gets_the_same_quote() -> None:
    job = CostSimulation(Random(3))
    past = job.past(40)

    assert compute_quote(CHAIN, past, 0, 0.0, "j") == compute_quote(CHAIN, past, 0, 0.0, "j")


_RATIO = st.floats(0.01, 100)


@pytest.mark.slow
@draws(25)
@given(st.integers(0, 10**6), st.sampled_from([0, MIN_SCORES]), _RATIO, _RATIO)
def test_the_likely_figure_is_never_above_the_upper_bound(
    seed: int, scores: int, likely: float, most: float
) -> None:
    samples = CostSimulation(Random(seed)).past(1).samples
    score = QuoteScore(likely, most, likely, most)
    quote = compute_quote(CHAIN, CostHistory(samples, [score] * scores), 0, 0.0, "j")

    for estimate in (quote.microusd, quote.seconds):
        assert estimate is None or estimate.likely <= estimate.most


@given(st.lists(st.integers(1, 1_000), min_size=MIN_SCORES, max_size=40))
def test_the_worse_the_latest_quotes_were_the_higher_is_the_next(figures: list[int]) -> None:
    def most(by: float) -> float:
        scores = [QuoteScore(ratio * by, ratio * by, ratio * by, ratio * by) for ratio in figures]
        quote = compute_quote(CHAIN, CostHistory(ALWAYS_THE_SAME.samples, scores), 0, 0.0, "x")
        assert quote.seconds
        return quote.seconds.most

    assert all(before <= after for before, after in pairwise(most(by) for by in (0.5, 1.0, 2.0)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, 12, 13, 14, 15])
def test_of_a_hundred_varied_jobs_85_to_97_stay_below_the_upper_bound(seed: int) -> None:
    job = CostSimulation(Random(seed))
    job.run(120)  # these jobs are the history that the quotes use

    outcomes = job.run(100)

    assert 85 <= sum(outcome.cost_held for outcome in outcomes) <= 97
    assert 85 <= sum(outcome.time_held for outcome in outcomes) <= 97


def test_a_score_is_the_real_figure_as_a_multiple_of_the_estimate() -> None:
    quote = compute_quote(CHAIN, ALWAYS_THE_SAME, 0, 0.0, "x")

    assert compute_score(quote, 274, 30.0) == QuoteScore(2.0, 2.0, 2.0, 2.0)


def test_a_quote_of_zero_for_a_free_job_was_right() -> None:
    free = compute_quote(CHAIN, CostHistory({"researcher": [CostSample(0, 1.0)]}), 0, 0.0, "x")
    score = compute_score(free, 0, 3.0)

    assert score
    assert score.cost_most == 1.0


@pytest.mark.parametrize(
    ("sample", "factor"), [(CostSample(0, 10.0), 100.0), (CostSample(2**53, 10.0), 0.01)]
)
def test_a_quote_from_false_samples_scales_the_quotes_of_other_jobs_by_a_bounded_factor(
    sample: CostSample, factor: float
) -> None:
    quote = compute_quote(CHAIN, CostHistory({"researcher": [sample]}), 0, 0.0, "x")

    score = compute_score(quote, 20_000, 30.0)

    assert score
    assert (score.cost_likely, score.cost_most) == (factor, factor)
