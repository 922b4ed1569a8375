"""Users write durations in options, files and settings, and read times."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ValidationError

from handoff_queue.shared.settings.settings import Duration
from handoff_queue.shared.text.times import (
    DurationRange,
    InvalidDuration,
    convert_whole_seconds,
    format_utc,
    in_units,
    parse_seconds,
    parse_whole_seconds,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("0", 0),
        ("1.5", 1.5),
        ("90s", 90),
        ("500ms", 0.5),
        ("10m", 600),
        ("1.5h", 5_400),
        ("2 D", 172_800),
        ("1w", 604_800),
        ("1h30m", 5_400),
        ("1h 30m", 5_400),
        ("2d 4h 5m 6s 7ms", 187_506.007),
        ("1m500ms", 60.5),
    ],
)
def test_a_duration_is_a_number_of_seconds_or_numbers_with_units(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "m", "-5m", "-5", "5 minutes", "1e3", "nan", "inf", "٣m", "5mm", "9" * 40,
        "30m1h", "1h1h", "1m30", "10 m x", "1.m", "5y", "1:30",
    ],
)  # fmt: skip
def test_other_text_is_refused_with_its_value_and_an_example(text: str) -> None:
    with pytest.raises(InvalidDuration, match=r"is not a duration.*such as 500ms") as refused:
        parse_seconds(text)

    assert repr(text[:40]) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_fraction_of_a_second_is_refused_where_seconds_are_counted() -> None:
    assert parse_whole_seconds("1.5m") == 90
    with pytest.raises(InvalidDuration, match="'1500ms' must be a whole number of seconds"):
        parse_whole_seconds("1500ms")
    with pytest.raises(InvalidDuration, match=r"^must be a whole number of seconds$"):
        convert_whole_seconds("1500ms")


def test_a_duration_outside_its_range_is_refused_with_the_bound() -> None:
    within = DurationRange(0.2, 3_600)

    assert within("1h") == 3_600
    with pytest.raises(InvalidDuration, match="'100ms' is too short: at least 200ms"):
        within("100ms")
    with pytest.raises(InvalidDuration, match="'61m' is too long: at most 1h"):
        within("61m")


def test_a_field_takes_numbers_and_texts_and_never_quotes_a_wrong_text() -> None:
    class Waiting(BaseModel):
        wait_s: Duration

    assert Waiting.model_validate({"wait_s": 7}).wait_s == 7
    assert Waiting.model_validate({"wait_s": "2m"}).wait_s == 120
    with pytest.raises(ValidationError, match="must be a number of seconds, or a duration") as bad:
        Waiting.model_validate({"wait_s": "canary"})
    assert "canary" not in bad.value.errors()[0]["msg"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (0.2, "200ms"), (1, "1s"), (90, "90s"), (3_600, "1h"), (30 * 86_400, "30d")]  # noqa: E501
)  # fmt: skip
def test_a_duration_is_shown_as_it_can_be_typed(seconds: float, text: str) -> None:
    assert in_units(seconds) == text
    assert parse_seconds(text) == seconds


def test_a_time_for_readers_is_in_utc_to_the_second() -> None:
    assert format_utc(1_769_850_300.9) == "2026-01-31 09:05:00 UTC"
