"""Names of the copies of a step that runs once for each item."""

from __future__ import annotations

import re

_COPY = re.compile(r"(.+)_[0-9]{4,}")


def build_copy_name(step_id: str, number: int) -> str:
    """Return the name of a copy: `page_0001`.

    Args:
        number: place of the item, from 1.
    """
    return f"{step_id}_{number:04d}"


def find_source(name: str) -> str | None:
    """Return the step whose copy may have this name, or None if no copy can have it."""
    match = _COPY.fullmatch(name)
    if match:
        return match[1]
    return None
