"""Titles of jobs and steps: one line of at most TITLE_CHARS characters."""

from __future__ import annotations

from handoff_queue.shared.types.plan import TITLE_CHARS


def title_of(text: str, most: int = TITLE_CHARS) -> str:
    """Return the first words of a text, on one line of at most `most` characters.

    A text that is cut ends with an ellipsis.
    """
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"
