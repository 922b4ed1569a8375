"""Figures as people read them."""

from __future__ import annotations

import pytest

from supervisor.cli.terminal import figures, money


@pytest.mark.parametrize(
    ("usd", "shown"),
    [
        (None, "cost unknown"),
        (0.0, "$0"),
        (0.000001, "$0.000001"),
        (0.000012, "$0.000012"),
        (0.000123, "$0.00012"),
        (0.00123, "$0.0012"),
        (0.0123, "$0.0123"),
        (12.3456, "$12.3456"),
    ],
)
def test_money_is_never_zero_for_little_or_unknown(usd: float | None, shown: str) -> None:
    assert money(usd) == shown


def test_an_upper_bound_is_marked_as_one() -> None:
    assert money(0.0123, at_most=True) == "≤ $0.0123"
    assert money(None, at_most=True) == "cost unknown"
    assert money(0.0, at_most=True) == "$0"
    assert figures(2_310, "token", at_most=True) == "≤ 2,310 tokens"
