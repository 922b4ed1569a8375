"""Headings of a text that becomes a section of another: moved below the section's own, whatever they were. Pure."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_DEEPEST = 6
"""Markdown knows no deeper heading."""


def below(level: int, text: str) -> str:
    """The Markdown with its highest heading one level below `level`, and the others as far below that as they were.

    Only headings of the text itself are touched: not what stands in code, in quotations and in lists.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    found = [token for token in _markdown().parse("\n".join(lines)) if token.type == "heading_open" and token.level == 0]
    move = level + 1 - min((int(token.tag[1]) for token in found), default=0)
    for token in reversed(found):  # from the end, so that the lines above keep their numbers
        assert token.map is not None
        first, end = token.map
        marks = "#" * min(_DEEPEST, int(token.tag[1]) + move)
        lines[first:end] = [f"{marks} {_words(lines[first:end], token.markup)}".rstrip()]
    return "\n".join(lines)


@cache
def _markdown() -> MarkdownIt:
    """Finds blocks only: what stands inside them is not looked at, and takes no time. Imported late: no command waits for it."""
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").disable(["inline", "text_join"])


def _words(lines: list[str], markup: str) -> str:
    """What a heading says: behind its `#`s, or above the line that underlines it."""
    if markup.startswith("#"):
        return lines[0].strip().lstrip("#").strip()
    return " ".join(word for line in lines[:-1] for word in line.split())
