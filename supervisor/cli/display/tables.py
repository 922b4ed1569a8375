"""Tables in Markdown, their columns in line: for a terminal, a page and a diff alike."""

from __future__ import annotations

from collections.abc import Sequence


def table(rows: Sequence[Sequence[str]]) -> str:
    """The first row is the heading."""
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*escaped, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in escaped
    ]
    return "\n".join(
        [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]
    )
