"""Rates, means and their intervals follow the formulas, and claim no more than few trials allow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.supervisor.evaluation.confidence_intervals import estimate_mean, estimate_rate


@pytest.mark.parametrize(
    ("good", "n", "low", "high"),
    [
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_an_interval_of_a_rate_is_wilsons(good: int, n: int, low: float, high: float) -> None:
    """The last three are method 3 of table I in Newcombe (1998),
    https://doi.org/10.1002/(SICI)1097-0258(19980430)17:8<857::AID-SIM777>3.0.CO;2-E.
    """
    interval = estimate_rate(good, n)
    assert interval is not None
    assert interval.low == pytest.approx(low, abs=5e-5)
    assert interval.high == pytest.approx(high, abs=5e-5)


@given(st.integers(1, 5_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_a_rate_lies_in_its_interval_which_lies_between_0_and_1_and_is_never_a_point(
    case: tuple[int, int],
) -> None:
    interval = estimate_rate(*case)
    assert interval is not None
    assert 0 <= interval.low <= interval.value <= interval.high <= 1
    assert interval.low < interval.high


@given(
    st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))),
    st.integers(2, 9),
)
def test_more_trials_of_the_same_rate_narrow_the_interval(
    case: tuple[int, int], times: int
) -> None:
    few, many = estimate_rate(*case), estimate_rate(case[0] * times, case[1] * times)
    assert few is not None
    assert many is not None
    assert many.high - many.low < few.high - few.low


def test_no_trials_give_no_rate_and_more_successes_than_trials_are_a_defect() -> None:
    assert (estimate_rate(0, 0), estimate_mean([]), estimate_mean([[]])) == (None, None, None)
    with pytest.raises(ValueError, match="2 of 1"):
        estimate_rate(2, 1)


GROUPS = st.lists(st.lists(st.floats(1, 5), min_size=1, max_size=4), min_size=1, max_size=12)


@given(GROUPS)
def test_a_mean_lies_in_its_interval_which_lies_among_the_values_and_is_the_same_twice(
    groups: list[list[float]],
) -> None:
    interval = estimate_mean(groups)
    values = [value for group in groups for value in group]
    assert interval is not None
    assert interval.value == pytest.approx(sum(values) / len(values))
    assert (
        min(values) - 1e-9 <= interval.low <= interval.value <= interval.high <= max(values) + 1e-9
    )
    assert estimate_mean(groups) == interval


def test_repeated_answers_to_a_request_count_as_a_single_value() -> None:
    once, often = (
        estimate_mean([[1.0], [5.0], [3.0], [4.0]]),
        estimate_mean([[1.0] * 9, [5.0] * 9, [3.0] * 9, [4.0] * 9]),
    )
    assert once == often


def test_the_bootstrap_of_many_values_is_near_the_normal_interval() -> None:
    """The values are 1 to 5 in turn, 200 in total. Their standard deviation is the square root of
    2.
    """
    interval = estimate_mean([[float(1 + n % 5)] for n in range(200)])
    assert interval is not None
    half = 1.96 * (2**0.5) / (200**0.5)
    assert interval.low == pytest.approx(3 - half, abs=0.03)
    assert interval.high == pytest.approx(3 + half, abs=0.03)
