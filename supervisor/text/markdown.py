"""Headings, titles and plain text of Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from handoff_queue.shared.types.step import TITLE_CHARS

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token


def split_lines(text: str) -> list[str]:
    """Return the lines of a text as Markdown counts them: only CR, LF and CRLF end a line."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


MAX_BLOCK_MARKS = 50_000
"""Most line breaks and bars of a text whose blocks are parsed. The parser needs up to 1,400 bytes
of memory for a line or a cell of a table. A worker that was taken over may return 64 MB.
"""


def has_many_blocks(text: str) -> bool:
    """Return whether a text is too long for a parser of its blocks."""
    return sum(map(text.count, "\r\n|")) > MAX_BLOCK_MARKS


def parse_blocks(text: str) -> list[Token]:
    """Return the tokens of the blocks in order. `Token.map` holds the first line of a block
    and the line after its last line. A text that is too long for the parser has no blocks.
    """
    if has_many_blocks(text):
        return []
    return _create_parser().parse("\n".join(split_lines(text)))


def iterate_headings(text: str) -> Iterator[str]:
    """Yield the texts of the headings, without headings in code, quotations and lists."""
    for token, inside in pairwise(parse_blocks(text)):
        if _is_heading(token):
            yield " ".join(inside.content.split())


@cache
def _create_parser() -> MarkdownIt:
    """Return a fast parser of blocks, which does not parse the text inside a block. The import
    is late, because commands that need no parser should not wait for it.
    """
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable("table").disable(["inline", "text_join"])


def _is_heading(token: Token) -> bool:
    """Return whether a heading begins that is not inside a quotation or a list."""
    return token.type == "heading_open" and token.level == 0


_DEEPEST = 6
"""Level of the deepest heading in Markdown."""


def lower_headings(level: int, text: str) -> str:
    """Return the Markdown with its highest heading one level below `level`, and the other
    headings moved by the same amount.

    No heading gets below level 6. Headings in code, quotations and lists are not changed.
    """
    lines = split_lines(text)
    headings = list(filter(_is_heading, parse_blocks(text)))
    move = level + 1 - min((int(token.tag[1]) for token in headings), default=0)
    for token in reversed(headings):  # from the end, so that the lines above keep their numbers
        assert token.map is not None
        first, end = token.map
        marks = "#" * min(_DEEPEST, int(token.tag[1]) + move)
        lines[first:end] = [f"{marks} {_get_heading_text(lines[first:end], token.markup)}".rstrip()]
    return "\n".join(lines)


def _get_heading_text(lines: list[str], markup: str) -> str:
    """Return the text of a heading: the text after its `#`s, or above its underline."""
    if markup.startswith("#"):
        return lines[0].strip().lstrip("#").strip()
    return " ".join(" ".join(lines[:-1]).split())


def cut_title(text: str, limit: int = TITLE_CHARS) -> str:
    """Return the first words of a text, on one line of at most `limit` characters.

    A text that is cut ends with an ellipsis.
    """
    line = " ".join(text.split())
    if len(line) <= limit:
        return line
    return line[: limit - 1].rstrip() + "…"
