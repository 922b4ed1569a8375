"""Code finds contradicting claims across units, dates and wordings, and reports no consistent
claims.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.conflicts.measuring import (
    PAIRS,
    load_planted_claims,
    measure_pairs,
    measure_planted_claims,
)
from handoff_queue.shared.types.handoff import Claim
from handoff_queue.supervisor.text.claim_conflicts import (
    MAX_STATEMENTS,
    contradicts,
    find_claim_conflicts,
)
from handoff_queue.supervisor.text.claim_values import read_value, values_contradict
from handoff_queue.supervisor.text.periods import parse_minutes, parse_periods
from handoff_queue.supervisor.text.quantities import (
    parse_quantity,
    parse_unit,
    quantities_contradict,
)
from tests.doubles.conflicting_claims import a_claim

UNIT_NAMES = {
    "length": ("m", "km", "cm", "mm", "feet", "inches", "miles", "yards"),
    "mass": ("kg", "g", "mg", "tonnes", "lb", "oz"),
    "time": ("s", "ms", "minutes", "h", "days", "weeks", "months", "years"),
    "bytes": ("B", "KiB", "MiB", "GiB", "kB", "MB", "GB"),
    "rates": ("requests per second", "requests per minute", "requests/hour"),
    "speed": ("km/h", "m/s", "mph"),
    "area": ("m²", "square feet", "acres", "ha"),
    "energy": ("J", "kWh", "kcal"),
}


def texts_contradict(first: str, second: str, attribute: str = "height") -> bool:
    return values_contradict(
        read_value(first, None, attribute), read_value(second, None, attribute)
    )


@pytest.mark.slow
def test_as_many_planted_contradictions_are_found_as_were_measured() -> None:
    result = measure_planted_claims()

    assert len(result.planted) >= 30
    assert result.consistent >= 60
    assert result.recall >= 29 / 30
    assert len(result.false_alarms) <= 1


@pytest.mark.parametrize(
    ("name", "recall", "false_alarms"), [("walked", 32 / 33, 0), ("held_out", 15 / 20, 1)]
)
def test_as_many_contradictions_of_a_set_of_pairs_are_found_as_were_measured(
    name: str, recall: float, false_alarms: int
) -> None:
    result = measure_pairs(name)

    assert name in PAIRS
    assert min(len(result.planted), result.consistent) >= 20
    assert result.recall >= recall
    assert len(result.false_alarms) <= false_alarms


def test_the_labels_are_pairs_of_claims_that_can_be_compared() -> None:
    claims, planted = load_planted_claims()

    assert all(claim.is_comparable for claim in claims.values())
    assert all(len(pair) == 2 for pair in planted)
    assert len(frozenset().union(*planted)) == 2 * len(planted)


@given(st.sampled_from(sorted(UNIT_NAMES)), st.data(), st.integers(1, 10**9))
def test_a_value_never_contradicts_itself_in_another_unit(
    kind: str, data: st.DataObject, number: int
) -> None:
    first, second = (data.draw(st.sampled_from(UNIT_NAMES[kind])) for _ in range(2))
    here, there = parse_unit(first), parse_unit(second)
    assert here is not None
    assert there is not None
    converted = Fraction(number) * here.factor / there.factor
    digits = data.draw(st.integers(2, 12))
    written = f"{Decimal(converted.numerator) / Decimal(converted.denominator):.{digits}e}"

    original = parse_quantity(f"{number} {first}")
    same_in_other_unit = parse_quantity(f"{written} {second}")

    assert original is not None
    assert same_in_other_unit is not None
    assert not quantities_contradict(original, same_in_other_unit)
    assert not quantities_contradict(same_in_other_unit, original)


@given(
    st.integers(2, 10**6),
    st.sampled_from([unit for units in UNIT_NAMES.values() for unit in units]),
    st.sampled_from([2, 3, 10]),
)
def test_a_multiple_always_contradicts(number: int, unit: str, times: int) -> None:
    first, second = parse_quantity(str(number), unit), parse_quantity(str(number * times), unit)

    assert first is not None
    assert second is not None
    assert quantities_contradict(first, second)


@pytest.mark.slow
@given(st.text(max_size=40), st.text(max_size=40), st.none() | st.text(max_size=12))
def test_any_text_is_read_and_never_contradicts_itself(
    first: str, second: str, unit: str | None
) -> None:
    first_value, second_value = read_value(first, unit, "size"), read_value(second, unit, "size")

    assert not values_contradict(first_value, first_value)
    assert values_contradict(first_value, second_value) == values_contradict(
        second_value, first_value
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("1,000", "1.0k"),
        ("2 million", "2,000,000"),
        ("2 million", "two million"),
        ("1 h 30 min", "90 minutes"),
        ("half an hour", "30 min"),
        ("5-10 kg", "7 kg"),
        ("at least 5", "12"),
        ("about 100", "104"),
        ("$5", "5 dollars"),
        ("12 %", "12 percent"),
        ("512 MB", "0.5 GB"),
        ("1e6", "1 million"),
        ("68 °F", "20 °C"),
        ("100 km/h", "62.1 mph"),
        ("2024-03-01", "1 March 2024"),
        ("2024-03-01", "March 2024"),
        ("Q1 2024", "Feb 2024"),
        ("03/04/2024", "4 March 2024"),
        ("yes", "supported"),
        ("no", "not supported"),
        ("US", "United States"),
        ("J. Smith", "Jane Smith"),
        ("14:30", "2:30 pm"),
        ("8,848.86 m", "8850 m"),
        ("2:30", "14:30"),
        ("12 am", "midnight"),
        ("3,6 Millionen", "3.6 million"),
        ("2,5 Mrd EUR", "2.5 billion EUR"),
        ("Linux and macOS", "Linux"),
        ("5 kg", "5 EUR"),
        ("high", "5 ms"),
    ],
)
def test_compatible_values_do_not_contradict(first: str, second: str) -> None:
    assert not texts_contradict(first, second)
    assert not texts_contradict(second, first)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("1,000", "1,001"),
        ("2 million", "2.4 million"),
        ("99.9 %", "99.95 %"),
        ("330 m", "984 feet"),
        ("-20 °C", "-20 °F"),
        ("5-10 kg", "12 kg"),
        ("at least 5", "3"),
        ("2024-03-01", "2 March 2024"),
        ("March 2024", "April 2024"),
        ("yes", "no"),
        ("yes", "does not support it"),
        ("MIT", "Apache 2.0"),
        ("Jane Smith", "John Smith"),
        ("14:30", "3:30 pm"),
        ("8,843.86 m", "8850 m"),
        ("131.7 m", "130 m"),
        ("49.00 USD", "50 USD"),
        ("09:00", "10 am"),
        ("3,6 Millionen", "4.2 million"),
        ("GPL 2.0", "GPL 3.0"),
        ("C", "C++"),
    ],
)
def test_incompatible_values_contradict(first: str, second: str) -> None:
    assert texts_contradict(first, second)
    assert texts_contradict(second, first)


@pytest.mark.parametrize(
    "text", ["32 March 2024", "2024-13-01", "31.02.2024", "soon", "", "12", "Q5 2024"]
)
def test_an_invalid_date_is_not_a_period(text: str) -> None:
    assert parse_periods(text) == ()


@pytest.mark.parametrize(
    ("first", "second", "is_conflict"),
    [
        ("2023", "2024", False),
        ("2023", "March 2023", True),
        ("2023-01-01", "January 2024", False),
    ],
)
def test_only_claims_about_the_same_time_contradict_each_other(
    first: str, second: str, is_conflict: bool
) -> None:
    assert (
        contradicts(a_claim("a.c1", "5", "kg", date=first), a_claim("b.c1", "6", "kg", date=second))
        is is_conflict
    )


@pytest.mark.parametrize(
    ("about", "what", "is_same"),
    [
        ("Eiffel Tower", "total height", True),
        ("the Eiffel tower", "height", True),
        ("Height of the Eiffel Tower", "height", True),
        ("Tokyo Tower", "height", False),
        ("Eiffel Tower", "width", False),
        ("Eiffel Tower 2", "height", False),
        ("Eiffel Tower", "maximum height", False),
    ],
)
def test_only_claims_about_the_same_thing_contradict_each_other(
    about: str, what: str, is_same: bool
) -> None:
    assert (
        contradicts(
            a_claim("a.c1", "330", "m"), a_claim("b.c1", "5", "m", subject=about, attribute=what)
        )
        is is_same
    )


@pytest.mark.parametrize(
    ("attribute", "first", "second", "is_conflict"),
    [
        ("branches", "Lyon", "Oslo", False),
        ("supported formats", "PDF", "EPUB", False),
        ("provides", "backups", "alerts", False),
        ("version", "3.11", "3.12", False),
        ("branches", "only Lyon", "only Oslo", True),
        ("number of branches", "4", "6", True),
        ("latest version", "3.11", "3.12", True),
        ("main branch", "Lyon", "Oslo", True),
        ("headquarters", "Lyon", "Oslo", True),
        ("supports branches", "yes", "no", True),
        ("branches", "Lyon", "not Lyon", True),
        ("release date", "03/05/2024", "3 May 2024", False),
        ("release date", "03/05/2024", "7 June 2024", True),
    ],
)
def test_an_attribute_with_many_values_contradicts_itself_only_if_each_claims_to_be_complete(
    attribute: str, first: str, second: str, is_conflict: bool
) -> None:
    claims = [
        a_claim(f"{name}.c1", value, attribute=attribute)
        for name, value in (("a", first), ("b", second))
    ]

    assert contradicts(*claims) is is_conflict
    assert contradicts(*reversed(claims)) is is_conflict


@pytest.mark.parametrize(
    ("attribute", "date", "is_conflict"),
    [
        ("revenue", "Q1 2023", False),
        ("revenue", "FY2023", True),
        ("visitors", "May 2023", False),
        ("depth", "Q1 2023", True),
    ],
)
def test_for_sums_a_part_of_a_year_is_another_period_than_the_year(
    attribute: str, date: str, is_conflict: bool
) -> None:
    part, whole = (
        a_claim("a.c1", "300", attribute=attribute, date=date),
        a_claim("b.c1", "1,300", attribute=attribute, date="2023"),
    )

    assert contradicts(part, whole) is is_conflict


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("maximum daily dose", "maximum dose per day"),
        ("arrival", "arrival time"),
        ("volume", "capacity"),
        ("efficacy", "effectiveness"),
        ("released on", "release date"),
    ],
)
def test_synonymous_attributes_are_compared(first: str, second: str) -> None:
    assert contradicts(
        a_claim("a.c1", "5", "kg", attribute=first), a_claim("b.c1", "9", "kg", attribute=second)
    )


@given(st.integers(0, 23), st.integers(0, 59))
def test_a_time_of_day_is_the_same_on_a_clock_of_twelve_hours(hour: int, minute: int) -> None:
    spoken = f"{(hour - 1) % 12 + 1}:{minute:02d} {'pm' if hour >= 12 else 'am'}"

    assert parse_minutes(spoken) == (hour * 60 + minute,)
    assert hour * 60 + minute in parse_minutes(f"{hour:02d}:{minute:02d}")
    assert not texts_contradict(spoken, f"{hour}:{minute:02d}")


@pytest.mark.parametrize("text", ["25:00", "13 pm", "10:75", "1.30", "12", "noonish", ""])
def test_an_invalid_time_of_day_is_none(text: str) -> None:
    assert parse_minutes(text) == ()


def test_all_claims_of_one_dispute_are_in_one_conflict_with_the_agreeing_claims() -> None:
    claims = [
        a_claim("a.c1", "330", "m"),
        a_claim("b.c1", "984", "ft"),
        a_claim("c.c1", "330", "m"),
        a_claim("d.c1", "5", "kg", attribute="mass"),
    ]
    conflicts, left_out = find_claim_conflicts(claims)

    assert [
        (conflict.id, [claim.id for claim in conflict.claims]) for conflict in conflicts.conflicts
    ] == [("k1", ["a.c1", "c.c1", "b.c1"])]
    assert left_out == 0


def test_a_claim_that_later_results_repeat_counts_once() -> None:
    assert find_claim_conflicts([a_claim("a.c1", "330", "m")] * 3)[0].conflicts == ()


def test_a_claim_without_structured_parts_is_not_compared() -> None:
    plain = [Claim(id=f"{step}.c1", text=f"It is {step}.") for step in "ab"]

    assert find_claim_conflicts(plain) == find_claim_conflicts([])


@pytest.mark.slow
def test_claims_over_the_limit_are_counted() -> None:
    many = [
        a_claim(f"a.c{number}", str(number), "m", subject=f"Tower {number}")
        for number in range(MAX_STATEMENTS + 3)
    ]

    assert find_claim_conflicts(many)[1] == 3
