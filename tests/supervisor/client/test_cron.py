"""Slots of a schedule: every local time of the cron expression, once, also when clocks change."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.client.cron import (
    check_cron,
    find_last_slot,
    format_month,
    format_slot,
    iterate_slots,
    next_slot,
)

BERLIN = "Europe/Berlin"
ZONES = ("UTC", BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu")
CRONS = ("*/20 * * * *", "30 2 * * *", "0 9 * * mon-fri", "15 1,2,3 * * *", "@hourly", "0 0 1 * *")
YEAR_2027 = 1_798_761_600
MOMENTS = st.integers(YEAR_2027, YEAR_2027 + 365 * 86_400)
"""Unix times of 2027, whose clocks change in each zone but UTC and Asia/Kathmandu."""
CLOCK_CHANGES = (
    (BERLIN, "2027-03-28"),
    (BERLIN, "2027-10-31"),
    ("America/New_York", "2027-03-14"),
    ("America/New_York", "2027-11-07"),
    ("Australia/Lord_Howe", "2027-04-04"),
    ("Australia/Lord_Howe", "2027-10-03"),
)
"""Zone and day of each clock change in 2027."""


def at(text: str, zone: str = BERLIN, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


def slots(cron: str, start: str, count: int, zone: str = BERLIN) -> list[str]:
    """Return the next slots after a local time, as people read them."""
    shown, moment = [], at(start, zone)
    for _ in range(count):
        moment = next_slot(cron, zone, moment)
        shown.append(format_slot(moment, zone))
    return shown


def test_a_local_time_in_the_gap_runs_once_at_the_next_valid_time() -> None:
    assert slots("30 2 * * *", "2027-03-27 12:00", 2) == [
        "2027-03-28 03:00 CEST",
        "2027-03-29 02:30 CEST",
    ]
    assert slots("*/30 * * * *", "2027-03-28 01:00", 3) == [
        "2027-03-28 01:30 CET",
        "2027-03-28 03:00 CEST",
        "2027-03-28 03:30 CEST",
    ]


def test_a_local_time_that_is_repeated_runs_once_when_it_comes_first() -> None:
    assert slots("30 2 * * *", "2027-10-30 12:00", 2) == [
        "2027-10-31 02:30 CEST",
        "2027-11-01 02:30 CET",
    ]
    assert slots("*/30 * * * *", "2027-10-31 01:45", 3) == [
        "2027-10-31 02:00 CEST",
        "2027-10-31 02:30 CEST",
        "2027-10-31 03:00 CET",
    ]


def test_a_day_that_a_zone_skips_runs_once_at_its_end() -> None:
    assert slots("0 9 * * *", "2011-12-29 12:00", 2, "Pacific/Apia") == [
        "2011-12-31 00:00 +14",
        "2011-12-31 09:00 +14",
    ]


def test_the_last_slot_in_the_repeated_hour_is_of_its_first_pass() -> None:
    second_pass = at("2027-10-31 02:10", fold=1)

    assert find_last_slot("*/20 * * * *", BERLIN, second_pass) == at("2027-10-31 02:40")


@given(st.sampled_from(CRONS), st.sampled_from(ZONES), MOMENTS)
def test_next_and_last_slot_agree(cron: str, zone: str, moment: int) -> None:
    following = next_slot(cron, zone, moment)
    previous = find_last_slot(cron, zone, moment)

    assert previous <= moment < following
    assert next_slot(cron, zone, previous) == following
    assert find_last_slot(cron, zone, following) == following
    assert find_last_slot(cron, zone, following - 1) == previous


@pytest.mark.parametrize(("zone", "day"), [*CLOCK_CHANGES, ("UTC", "2027-06-01")])
def test_each_local_time_of_a_day_has_one_slot(zone: str, day: str) -> None:
    first = next_slot("*/20 * * * *", zone, at(day, zone))
    slots = list(iterate_slots("*/20 * * * *", zone, first, first + 86_400))

    assert all(earlier < later for earlier, later in pairwise(slots))
    local = [datetime.fromtimestamp(slot, ZoneInfo(zone)).replace(tzinfo=None) for slot in slots]
    assert len(set(local)) == len(local)
    wanted = local[0]
    for time in local:  # a time may only be missing if the zone skips it
        while wanted < time:
            unix_s = wanted.replace(tzinfo=ZoneInfo(zone)).timestamp()
            assert datetime.fromtimestamp(unix_s, ZoneInfo(zone)).replace(tzinfo=None) != wanted
            wanted += timedelta(minutes=20)
        wanted = time + timedelta(minutes=20)


@pytest.mark.parametrize(
    "cron",
    ["", "nope", "* * * *", "61 * * * *", "* * * * * *", "@reboot", "R * * * *", "*/5,h * * * *"],
)
def test_an_expression_that_is_not_a_cron_expression_is_one_line_with_an_example(cron: str) -> None:
    with pytest.raises(UserError, match=r"is not a cron expression.*0 9 \* \* mon-fri") as refused:
        check_cron(cron, "UTC", YEAR_2027)

    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("cron", "problem"),
    [
        ("61 * * * *", "minute 61: use 0 to 59"),
        ("0 25 * * *", "hour 25: use 0 to 23"),
        ("0 9 * * funday", "weekday funday: use 0 to 7, or sun to sat"),
    ],
)
def test_the_error_names_the_invalid_field_and_its_values(cron: str, problem: str) -> None:
    with pytest.raises(UserError) as refused:
        check_cron(cron, "UTC", YEAR_2027)

    assert f"({problem})" in str(refused.value)


def test_an_expression_without_a_date_is_refused() -> None:
    with pytest.raises(UserError, match="no date matches the cron expression '0 0 30 2"):
        check_cron("0 0 30 2 *", "UTC", YEAR_2027)


@pytest.mark.parametrize("zone", ["", "Europe", "Mars/Base", "../etc/passwd", "a\0b", "z" * 100])
def test_an_unknown_zone_is_one_line_with_an_example(zone: str) -> None:
    with pytest.raises(UserError, match=r"there is no time zone .*: write a name such as Europe"):
        check_cron("@daily", zone, YEAR_2027)


def test_the_expression_is_stored_with_single_spaces_and_its_first_slot() -> None:
    assert check_cron("  0  9 * *\tmon ", "UTC", YEAR_2027) == (
        "0 9 * * mon",
        1_798_966_800 + 86_400,
    )


def test_a_month_begins_at_the_midnight_of_its_zone() -> None:
    midnight = at("2027-12-01 00:00")

    assert format_month(BERLIN, midnight) == "2027-12"
    assert format_month(BERLIN, midnight - 1) == "2027-11"
    assert format_month("America/New_York", midnight) == "2027-11"
