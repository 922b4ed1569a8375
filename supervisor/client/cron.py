"""Slots of a schedule: the times of a cron expression in a time zone. Pure.

A cron expression describes local times. A local time that a zone skips becomes the next valid time.
A local time that a zone repeats counts once, when it comes first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from handoff_queue.shared.settings.optional_packages import check_extra
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.schedule import MAX_CRON_CHARS, MAX_ZONE_CHARS

ALIASES = ("@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually")
_FIELD = r"[0-9A-Za-z*,/#?-]+"
_FIELDS = re.compile(rf"{_FIELD}( {_FIELD}){{4}}")
_RANDOM = re.compile(r"(^|[ ,])[rh]([ ,/]|$)", re.IGNORECASE)
"""A field of croniter whose value is random, or depends on a name."""
_FIELD_VALUES = {
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day": "1 to 31",
    "month": "1 to 12, or jan to dec",
    "weekday": "0 to 7, or sun to sat",
}
"""Field of an expression, in their order -> its values."""
_EXAMPLE = 'write minute, hour, day, month and weekday, such as "0 9 * * mon-fri"'


def check_cron(cron: str, timezone: str, now: float) -> tuple[str, int]:
    """Return the expression with single spaces, and its first slot after `now`.

    Raises:
        UserError: the expression or the zone cannot be used, no date matches, or croniter is not
            installed.
    """
    check_extra("schedules", "a schedule", "schedules")
    # imported here, because croniter starts a process when a program imports it
    from croniter import CroniterBadDateError

    load_zone(timezone)
    text = " ".join(cron.split())
    is_cron = _FIELDS.fullmatch(text) and not _RANDOM.search(text)
    if len(text) > MAX_CRON_CHARS or not (is_cron or text.lower() in ALIASES):
        raise UserError(f"{cron!r:.80} is not a cron expression: {_EXAMPLE}")
    try:
        return text, next_slot(text, timezone, now)
    except CroniterBadDateError:
        raise UserError(f"no date matches the cron expression {text!r:.80}: {_EXAMPLE}") from None
    except ValueError:  # also each other error of croniter
        problem = _find_field_problem(text.split())
        raise UserError(f"{cron!r:.80} is not a cron expression{problem}: {_EXAMPLE}") from None


def _find_field_problem(values: Sequence[str]) -> str:
    """Return the first field that croniter refuses, such as ` (minute 61: use 0 to 59)`. The text
    is empty if each field alone is valid.
    """
    from croniter import croniter

    for place, (name, values_of_it) in enumerate(_FIELD_VALUES.items()):
        alone = ["*"] * len(_FIELD_VALUES)
        alone[place] = values[place]
        if not croniter.is_valid(" ".join(alone)):
            return f" ({name} {values[place]:.40}: use {values_of_it})"
    return ""


def load_zone(name: str) -> ZoneInfo:
    """Return a time zone.

    Raises:
        UserError: this machine knows no zone of this name.
    """
    try:
        if name and len(name) <= MAX_ZONE_CHARS:
            return ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        pass
    raise UserError(f"there is no time zone {name!r:.80}: write a name such as Europe/Berlin")


def next_slot(cron: str, timezone: str, after: float) -> int:
    """Return the first slot after a Unix time, in Unix seconds."""
    zone = load_zone(timezone)
    local = datetime.fromtimestamp(after, zone).replace(tzinfo=None, fold=0)
    times = _iterate_times(cron, local)
    while True:
        slot = _to_instant(times.get_next(datetime), zone)
        if slot > after:
            return slot


def find_last_slot(cron: str, timezone: str, until: float) -> int:
    """Return the last slot that is not after a Unix time, in Unix seconds."""
    zone = load_zone(timezone)
    moment = datetime.fromtimestamp(until, zone)
    local = moment.replace(tzinfo=None, fold=0)
    if moment.fold:  # later local times of the first pass are in the past, too
        first_offset = moment.replace(fold=0).utcoffset()
        second_offset = moment.utcoffset()
        assert first_offset is not None
        assert second_offset is not None
        local += first_offset - second_offset
    times = _iterate_times(cron, local + timedelta(seconds=1))
    while True:
        slot = _to_instant(times.get_prev(datetime), zone)
        if slot <= until:
            return slot


def iterate_slots(cron: str, timezone: str, first: int, until: float) -> Iterator[int]:
    """Yield the slots from `first`, which is a slot, to a Unix time, the oldest first."""
    slot = first
    while slot <= until:
        yield slot
        slot = next_slot(cron, timezone, slot)


def format_month(timezone: str, at: float) -> str:
    """Return the month of a Unix time in a zone, such as `2026-11`."""
    return f"{datetime.fromtimestamp(at, load_zone(timezone)):%Y-%m}"


def format_slot(slot: float, timezone: str) -> str:
    """Return a slot as a local time of its zone, such as `2026-11-28 09:00 CET`."""
    return f"{datetime.fromtimestamp(slot, load_zone(timezone)):%Y-%m-%d %H:%M %Z}"


def _iterate_times(cron: str, local: datetime) -> Any:
    """Return croniter's iterator over local times."""
    from croniter import croniter

    return croniter(cron, local)


def _to_instant(local: datetime, zone: ZoneInfo) -> int:
    """Return the Unix time of a local time: the first of two, or the end of the gap."""
    moment = local.replace(tzinfo=zone)
    unix_s = int(moment.timestamp())
    if datetime.fromtimestamp(unix_s, zone).replace(tzinfo=None) == local:
        return unix_s
    return _find_end_of_gap(int(moment.replace(fold=1).timestamp()), unix_s, zone)


def _find_end_of_gap(before: int, after: int, zone: ZoneInfo) -> int:
    """Return the first second of the offset that is valid at `after`."""
    offset = datetime.fromtimestamp(after, zone).utcoffset()
    while after - before > 1:
        middle = (before + after) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == offset:
            after = middle
        else:
            before = middle
    return after
