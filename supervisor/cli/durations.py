"""Durations as a user types them: `90`, `45s`, `10m`, `2h`, `3d`, `1w`. Pure."""

from __future__ import annotations

import re

import typer

from shared.plurals import counted
from shared.wire.limits import MOST_SECONDS

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def seconds_of(text: str) -> float:
    """Return a duration in seconds. A number without a unit is a number of seconds.

    Raises:
        typer.BadParameter: the text is no duration, or the duration is longer than a year.
    """
    parts = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s?([smhdw]?)", text.strip().lower())
    if parts is None:
        raise typer.BadParameter(
            f"{text[:40]!r} is no duration: write a number and s, m, h, d or w, as in 90s, 10m or 2h"
        )
    seconds = float(parts[1]) * _SECONDS[parts[2]]
    if seconds > MOST_SECONDS:
        raise typer.BadParameter(
            f"{text[:40]!r} is too long: at most {counted(MOST_SECONDS // 86_400, 'day')}"
        )
    return seconds
