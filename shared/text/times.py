"""Durations as people write them: `90`, `500ms`, `45s`, `10m`, `1h30m`, `7d`. Times as people read
them: `2026-01-31 09:05:00 UTC`.

Options, job files, workflows, specialists and settings all use this parser of durations.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

_UNITS_MS = {
    "w": 604_800_000,
    "d": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1_000,
    "ms": 1,
}
"""Milliseconds of each unit, the longest unit first."""
_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,6})?"
_SECONDS = re.compile(_NUMBER)
_NEGATIVE = re.compile(f"-{_NUMBER}")
_WITH_UNITS = re.compile(
    r"\s*+".join(rf"(?:({_NUMBER})\s?{unit}(?![a-z]))?" for unit in _UNITS_MS), re.IGNORECASE
)
FORMS = "a number of seconds, or a duration such as 500ms, 45s, 10m, 1h30m or 7d"
"""Forms that a user can write, for help and errors."""
_QUOTED_CHARS = 40
"""Most characters of a wrong text that an error repeats."""


class InvalidDuration(ValueError):
    """A text that is not a duration, or a duration that is not allowed here."""


def parse_seconds(text: str) -> float:
    """Return a duration in seconds. A number without a unit is a number of seconds.

    Each unit may occur once, the longest first: w, d, h, m, s, ms.

    Raises:
        InvalidDuration: the text is not a duration. The message quotes the text.
    """
    stripped = text.strip()
    if _SECONDS.fullmatch(stripped):
        return float(stripped)
    match = _WITH_UNITS.fullmatch(stripped)
    if match is None or not stripped:
        raise InvalidDuration(f"{text[:_QUOTED_CHARS]!r} is not a duration: write {FORMS}")
    numbers = zip(match.groups(), _UNITS_MS.values(), strict=True)
    milliseconds: list[float] = []
    for number, factor in numbers:
        if number is not None:
            milliseconds.append(float(number) * factor)
    return sum(milliseconds) / 1_000


def parse_whole_seconds(text: str) -> int:
    """Return a duration that is a whole number of seconds.

    Raises:
        InvalidDuration: the text is not a duration, or has a fraction of a second.
    """
    seconds = parse_seconds(text)
    if not seconds.is_integer():
        raise InvalidDuration(f"{text[:_QUOTED_CHARS]!r} must be a whole number of seconds")
    return int(seconds)


def convert_seconds(value: object) -> object:
    """Return the seconds of a text, and any other value unchanged: a validator for Pydantic.

    Raises:
        InvalidDuration: the text is not a duration. The message does not quote the text, because a
            secret may have been written there by mistake.
    """
    if not isinstance(value, str):
        return value
    if _NEGATIVE.fullmatch(value.strip()):
        return float(value)  # the bounds of the field refuse it
    try:
        return parse_seconds(value)
    except InvalidDuration:
        raise InvalidDuration(f"must be {FORMS}") from None


def convert_whole_seconds(value: object) -> object:
    """Return the whole seconds of a text, and any other value unchanged, as `convert_seconds` does.

    Raises:
        InvalidDuration: the text is not a duration of whole seconds. The message does not quote it.
    """
    seconds = convert_seconds(value)
    if not isinstance(value, str) or not isinstance(seconds, float):
        return value
    if not seconds.is_integer():
        raise InvalidDuration("must be a whole number of seconds")
    return int(seconds)


def in_units(seconds: float) -> str:
    """Return a duration as `parse_seconds` reads it, in the longest unit up to days that gives a
    whole number. It is rounded to milliseconds.
    """
    milliseconds = round(seconds * 1_000)
    if milliseconds == 0:
        return "0s"
    for unit in ("d", "h", "m", "s"):
        if milliseconds % _UNITS_MS[unit] == 0:
            return f"{milliseconds // _UNITS_MS[unit]}{unit}"
    return f"{milliseconds}ms"


@dataclass(frozen=True, slots=True)
class DurationRange:
    """A parser of durations between two bounds, in seconds."""

    least: float
    most: float
    is_whole: bool = False
    """True if a fraction of a second is refused."""

    def __call__(self, value: str | float) -> float:
        """Return the seconds of a text. A number, which is the default of an option, is
        returned unchanged.

        Raises:
            InvalidDuration: the text is not a duration, or the duration is outside the bounds.
        """
        if not isinstance(value, str):
            return value
        seconds = parse_whole_seconds(value) if self.is_whole else parse_seconds(value)
        quoted_value = repr(value[:_QUOTED_CHARS])
        if seconds < self.least:
            raise InvalidDuration(f"{quoted_value} is too short: at least {in_units(self.least)}")
        if seconds > self.most:
            raise InvalidDuration(f"{quoted_value} is too long: at most {in_units(self.most)}")
        return seconds


def format_utc(unix_s: float) -> str:
    """Return a time in UTC, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(unix_s))
