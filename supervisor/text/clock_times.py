"""Times of day, as minutes after midnight. Pure."""

from __future__ import annotations

import re

_CLOCK = re.compile(
    r"(?P<h>\d{1,2})(?:[:.](?P<m>\d{2})(?::\d{2})?)?\s*(?:(?P<half>[ap])\.?\s?m\.?|(?P<sharp>h|o'clock|uhr))?",
    re.IGNORECASE,
)
_NAMED = {"noon": 720, "midday": 720, "midnight": 0}


def minutes_of(text: str) -> tuple[int, ...]:
    """What a text can mean; none: it is no time of day. `2:30` is in the night or in the afternoon, `14:30` and `02:30` are not."""
    said = text.casefold().strip(" .,")
    if said in _NAMED:
        return (_NAMED[said],)
    found = _CLOCK.fullmatch(said)
    if not found or not (found["half"] or found["m"]):
        return ()
    hour, minute = int(found["h"]), int(found["m"] or 0)
    if (":" not in said and not found["half"]) or minute > 59 or hour > 24:
        return ()
    if found["half"]:
        return (
            ((hour % 12 + (12 if found["half"] == "p" else 0)) * 60 + minute,)
            if 1 <= hour <= 12
            else ()
        )
    is_either = 1 <= hour <= 12 and not found["h"].startswith("0") and not found["sharp"]
    return tuple(
        dict.fromkeys(
            (hour % 24 * 60 + minute, *((hour % 12 + 12) * 60 + minute for _ in range(is_either)))
        )
    )
