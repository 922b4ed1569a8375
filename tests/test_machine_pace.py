"""A test that limits processor time repeats a measurement that other programs disturbed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.machine_pace import TRIES, measure


def make_clock(*taken_s: float) -> Callable[[], float]:
    """Return a clock on which each piece of work takes the next time."""
    times = [0.0]
    for taken in taken_s:
        times += [times[-1] + taken] * 2
    return iter(times).__next__


@pytest.mark.parametrize("disturbed", range(TRIES))
def test_a_time_above_the_limit_is_measured_again(disturbed: int) -> None:
    clock = make_clock(*[1_000] * disturbed, 0.5)

    assert measure(lambda: None, limit_s=1, clock=clock) == 0.5


def test_work_that_always_takes_too_long_is_found() -> None:
    clock = make_clock(*[1_000] * TRIES)

    assert measure(lambda: None, limit_s=1, clock=clock) >= 1
