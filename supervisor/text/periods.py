"""Dates, times of day and periods in text."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import date

_CLOCK = re.compile(
    r"(?P<h>\d{1,2})(?:[:.](?P<m>\d{2})(?::\d{2})?)?\s*(?:(?P<half>[ap])\.?\s?m\.?|(?P<sharp>h|o'clock|uhr))?",
    re.IGNORECASE,
)
_NAMED = {"noon": 720, "midday": 720, "midnight": 0}


def parse_minutes(text: str) -> tuple[int, ...]:
    """Return the possible times of day in minutes after midnight; empty if the text is not a
    time.

    `2:30` is in the night or in the afternoon. `14:30` and `02:30` have one meaning.
    """
    clock = text.casefold().strip(" .,")
    if clock in _NAMED:
        return (_NAMED[clock],)
    match = _CLOCK.fullmatch(clock)
    if not match or not (match["half"] or match["m"]):
        return ()
    hour, minute = int(match["h"]), int(match["m"] or 0)
    if (":" not in clock and not match["half"]) or minute > 59 or hour > 24:
        return ()
    if match["half"]:
        if 1 <= hour <= 12:
            return ((hour % 12 + (12 if match["half"] == "p" else 0)) * 60 + minute,)
        return ()
    is_either = 1 <= hour <= 12 and not match["h"].startswith("0") and not match["sharp"]
    times = [hour % 24 * 60 + minute]
    if is_either:
        times.append((hour % 12 + 12) * 60 + minute)
    return tuple(dict.fromkeys(times))


Period = tuple[date, date]
"""The first and the last day of a period."""

_MONTHS = {
    name: number
    for number, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)
}
_MONTH = r"(?P<m>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\.?"
_DAY = r"(?P<d>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?P<y>1\d{3}|20\d\d|21\d\d)"
_LEAD = re.compile(
    r"^(?:as of|as at|in|on|since|from|at|by|the|year|fy|fiscal year|fiscal|early|late|mid|end"
    r" of|beginning of)[\s-]*",
    re.IGNORECASE,
)
_QUARTERS = {
    "first": 1,
    "second": 2,
    "third": 3,
    "fourth": 4,
    "last": 4,
    "1st": 1,
    "2nd": 2,
    "3rd": 3,
    "4th": 4,
}
_FORMS = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"{_YEAR}",
        rf"{_YEAR}[-/.](?P<m>\d{{1,2}})",
        rf"{_YEAR}[-/.](?P<m>\d{{1,2}})[-/.](?P<d>\d{{1,2}})(?:[t ]\d.*)?",
        rf"{_DAY}[\s-]*(?:of )?{_MONTH},?[\s-]*{_YEAR}",
        rf"{_MONTH}\s*{_DAY},?\s+{_YEAR}",
        rf"{_MONTH},?[\s-]*(?:of )?{_YEAR}",
        rf"{_YEAR}[\s-]+{_MONTH}(?:[\s-]+{_DAY})?",
    )
)
_NUMERIC = re.compile(rf"(\d{{1,2}})[./-](\d{{1,2}})[./-]{_YEAR}")
_PART = re.compile(
    r"(?:(?P<k>[qh])(?P<n>[1-4])|"
    rf"(?P<w>{'|'.join(_QUARTERS)}) (?P<l>quarter|half)(?: of)?)[\s-]*{_YEAR}",
    re.IGNORECASE,
)
_PART_BEHIND = re.compile(rf"{_YEAR}[\s-]*(?P<k>[qh])(?P<n>[1-4])", re.IGNORECASE)
_DECADE = re.compile(r"(1\d{2}|20\d)0s")


def parse_periods(text: str) -> tuple[Period, ...]:
    """Return the possible periods; empty if the text is not a date or a period.

    `03/04/2024` is a day of March or of April, and `03.04.2024` is a day of April.
    """
    phrase = _without_lead(" ".join(text.split()).strip(" .,()"))
    for form in _FORMS:
        match = form.fullmatch(phrase)
        if match:
            return _build_periods(match.groupdict())
    numeric = _NUMERIC.fullmatch(phrase)
    if numeric:
        return _parse_numeric_days(numeric["y"], numeric[1], numeric[2], is_day_first="." in phrase)
    part = _PART.fullmatch(phrase) or _PART_BEHIND.fullmatch(phrase)
    if part:
        return _parse_quarter_or_half(part.groupdict())
    decade = _DECADE.fullmatch(phrase)
    if decade:
        first_year = int(decade[1]) * 10
        return ((date(first_year, 1, 1), date(first_year + 9, 12, 31)),)
    return ()


def _without_lead(phrase: str) -> str:
    """Return a phrase without words such as "since the" at its beginning."""
    shorter = _LEAD.sub("", phrase)
    while shorter != phrase:
        phrase = shorter
        shorter = _LEAD.sub("", phrase)
    return phrase


def _parse_numeric_days(
    year: str, first: str, second: str, *, is_day_first: bool
) -> tuple[Period, ...]:
    """Return the possible days of a date in numbers, each once."""
    orders = [(first, second)]
    if not is_day_first:
        orders.append((second, first))
    days: dict[Period, None] = {}
    for day, month in orders:
        days |= dict.fromkeys(_build_periods({"y": year, "m": month, "d": day}))
    return tuple(days)


def are_apart(first_periods: tuple[Period, ...], second_periods: tuple[Period, ...]) -> bool:
    """Return whether no possible period of one has a day in common with a possible period of
    the other.
    """
    for first, last in first_periods:
        for other_first, other_last in second_periods:
            if first <= other_last and other_first <= last:
                return False
    return True


def _build_periods(parts: dict[str, str | None]) -> tuple[Period, ...]:
    """Return the year, the month or the day with these parts: `y`, `m` and `d`. Empty: there is
    no such month or day.
    """
    year = int(parts["y"] or 0)
    month, day = parts.get("m"), parts.get("d")
    if not month:
        return ((date(year, 1, 1), date(year, 12, 31)),)
    if month.isdigit():
        number = int(month)
    else:
        number = _MONTHS[month[:3].casefold()]
    if not 1 <= number <= 12:
        return ()
    last_day = _get_last_day(year, number)
    if not day:
        return ((date(year, number, 1), last_day),)
    if not 1 <= int(day) <= last_day.day:
        return ()
    only_day = date(year, number, int(day))
    return ((only_day, only_day),)


def _get_last_day(year: int, month: int) -> date:
    """Return the last day of a month."""
    _, days = monthrange(year, month)
    return date(year, month, days)


def _parse_quarter_or_half(parts: dict[str, str | None]) -> tuple[Period, ...]:
    """Return the quarter or the half of a year; empty if there is no such part.

    Args:
        parts: the year `y`, and the kind and the number of the part. These are `k` and `n` as in
            Q3, or `l` and `w` as in "third quarter".
    """
    is_half = (parts.get("k") or (parts.get("l") or "")[:1]).casefold() == "h"
    if parts.get("n"):
        number = int(parts["n"] or 0)
    else:
        number = _QUARTERS[(parts.get("w") or "").casefold()]
    months = 6 if is_half else 3
    year = int(parts["y"] or 0)
    last_month = months * number
    if last_month > 12:
        return ()
    first_day = date(year, last_month - months + 1, 1)
    return ((first_day, _get_last_day(year, last_month)),)
