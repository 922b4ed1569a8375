"""Headings of a text that becomes a section of another: moved below the section's own, whatever they were. Pure."""

from __future__ import annotations

from handoff_queue.supervisor.text.markdown import blocks_of, lines_of

_DEEPEST = 6
"""Markdown knows no deeper heading."""


def below(level: int, text: str) -> str:
    """The Markdown with its highest heading one level below `level`, and the others as far below that as they were.

    Only headings of the text itself are touched: not what stands in code, in quotations and in lists.
    """
    lines = lines_of(text)
    found = [
        token for token in blocks_of(text) if token.type == "heading_open" and token.level == 0
    ]
    move = level + 1 - min((int(token.tag[1]) for token in found), default=0)
    for token in reversed(found):  # from the end, so that the lines above keep their numbers
        assert token.map is not None
        first, end = token.map
        marks = "#" * min(_DEEPEST, int(token.tag[1]) + move)
        lines[first:end] = [f"{marks} {_words(lines[first:end], token.markup)}".rstrip()]
    return "\n".join(lines)


def _words(lines: list[str], markup: str) -> str:
    """What a heading says: behind its `#`s, or above the line that underlines it."""
    if markup.startswith("#"):
        return lines[0].strip().lstrip("#").strip()
    return " ".join(word for line in lines[:-1] for word in line.split())
