"""Amounts of money and figures, and colours on a terminal and in a log."""

from __future__ import annotations

import pytest

from handoff_queue.supervisor.cli.display.terminal import (
    format_bounded_count,
    format_money,
    get_stderr,
    get_stdout,
)


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
        (-0.5, "$-0.5000"),
    ],
)
def test_money_is_never_zero_for_little_or_unknown(usd: float | None, shown: str) -> None:
    assert format_money(usd) == shown


def test_an_upper_bound_is_marked() -> None:
    assert format_money(0.0123, at_most=True) == "≤ $0.0123"
    assert format_money(None, at_most=True) == "cost unknown"
    assert format_money(0.0, at_most=True) == "$0"
    assert format_bounded_count(2_310, "token", at_most=True) == "≤ 2,310 tokens"


def test_forced_colours_do_not_make_a_log_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log has colours, and is not drawn in place."""
    for variable in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.setenv(variable, "1")

    assert [
        (console.is_terminal, console.color_system) for console in (get_stdout(), get_stderr())
    ] == [(False, "standard")] * 2


def test_a_log_has_no_colours_unless_they_are_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    assert [
        (console.is_terminal, console.color_system) for console in (get_stdout(), get_stderr())
    ] == [(False, None)] * 2
