"""Cursors of pages of the list of jobs. A cursor is a place of the store without its bracket."""

from __future__ import annotations

import re

_CURSOR = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20})?(e\+[0-9]{1,2})?")


def is_cursor(text: str) -> bool:
    """Return whether a text has the form of a cursor."""
    return _CURSOR.fullmatch(text) is not None


def place_of(cursor: str | None) -> str:
    """Return the place in the list of jobs at which a page starts; '' for the first page."""
    return f"({cursor}" if cursor else ""


def cursor_of(place: str) -> str | None:
    """Return the cursor of the page at a place. None: there are no more jobs."""
    return place.lstrip("(") or None
