"""The names of the copies of a step that is repeated."""

from __future__ import annotations

import re

_COPY = re.compile(r"(.+)_[0-9]{4,}")


def copy_name(step_id: str, number: int) -> str:
    """Return `page_0001`.

    Args:
        number: counts from 1. The same item always has the same name.
    """
    return f"{step_id}_{number:04d}"


def source_of(name: str) -> str | None:
    """Return the step that this name may be a copy of, or None if it is not a copy's name."""
    match = _COPY.fullmatch(name)
    if match:
        return match[1]
    return None
