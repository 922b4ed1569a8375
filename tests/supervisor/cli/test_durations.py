"""Durations that a user types."""

from __future__ import annotations

import pytest
import typer

from supervisor.cli.durations import seconds_of


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5_400), ("2 D", 172_800), ("1w", 604_800)],
)
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "-5m", "5 minutes", "1e3", "nan", "٣m", "5mm", "9" * 40])
def test_other_text_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="as in 90s, 10m or 2h"):
        seconds_of(text)


def test_more_than_a_year_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match="at most 365 days"):
        seconds_of("53w")
