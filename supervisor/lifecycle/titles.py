"""What a job or a step is called where a line has to do."""

from __future__ import annotations

TITLE_CHARS = 80


def title_of(text: str) -> str:
    """The first words, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1].rstrip() + "…"
