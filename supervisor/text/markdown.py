"""Headings, titles and plain text of Markdown, and images of other hosts in it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from handoff_queue.shared.types.step import TITLE_CHARS

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token


def lines_of(text: str) -> list[str]:
    """Return the lines of a text as Markdown counts them: only CR, LF and CRLF end a line."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def blocks_of(text: str) -> list[Token]:
    """Return the tokens of the blocks in order. `Token.map` holds the first line of a block
    and the line after its last line.
    """
    return _markdown().parse("\n".join(lines_of(text)))


def headings_in(text: str) -> Iterator[str]:
    """Yield the texts of the headings, without headings in code, quotations and lists."""
    for token, inside in pairwise(blocks_of(text)):
        if _is_heading(token):
            yield " ".join(inside.content.split())


@cache
def _markdown() -> MarkdownIt:
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


def below(level: int, text: str) -> str:
    """Return the Markdown with its highest heading one level below `level`, and the other
    headings moved by the same amount.

    No heading gets below level 6. Headings in code, quotations and lists are not changed.
    """
    lines = lines_of(text)
    headings = list(filter(_is_heading, blocks_of(text)))
    move = level + 1 - min((int(token.tag[1]) for token in headings), default=0)
    for token in reversed(headings):  # from the end, so that the lines above keep their numbers
        assert token.map is not None
        first, end = token.map
        marks = "#" * min(_DEEPEST, int(token.tag[1]) + move)
        lines[first:end] = [f"{marks} {_words(lines[first:end], token.markup)}".rstrip()]
    return "\n".join(lines)


def _words(lines: list[str], markup: str) -> str:
    """Return the text of a heading: the text after its `#`s, or above its underline."""
    if markup.startswith("#"):
        return lines[0].strip().lstrip("#").strip()
    return " ".join(" ".join(lines[:-1]).split())


def title_of(text: str, most: int = TITLE_CHARS) -> str:
    """Return the first words of a text, on one line of at most `most` characters.

    A text that is cut ends with an ellipsis.
    """
    line = " ".join(text.split())
    if len(line) <= most:
        return line
    return line[: most - 1].rstrip() + "…"


_REMOTE = r"\s*<?\s*(?:https?:)?[/\\]{2}"
_INLINE = re.compile(rf"!(?=\[[^\n]{{0,2000}}?\]\({_REMOTE})", re.IGNORECASE)
_DEFINITION = re.compile(rf"^ {{0,3}}\[([^\[\]\n]+)\]:{_REMOTE}", re.IGNORECASE | re.MULTILINE)
_REFERENCE = re.compile(r"!(?=\[([^\[\]\n]*)\](?:\[([^\[\]\n]*)\])?)")
_ELEMENT = re.compile(
    rf"<(?=[a-z][^<>]{{0,4000}}?(?:src|srcset|href|data|poster|style)\s*=[^<>]{{0,4000}}?{_REMOTE})",
    re.IGNORECASE,
)


def without_foreign_images(text: str) -> str:
    """Return the Markdown with images of other hosts, and HTML elements with a URL, as plain text.

    A viewer would fetch an image at once, so its URL can carry data out. The URL stays visible,
    and a reader can follow it.
    """
    text = _ELEMENT.sub("&lt;", _INLINE.sub(r"\\!", text))
    labels = {_label(match) for match in _DEFINITION.findall(text)}
    if not labels:
        return text

    def escaped(match: re.Match[str]) -> str:
        if _label(match[2] or match[1]) in labels:
            return "\\!"
        return match[0]

    return _REFERENCE.sub(escaped, text)


def _label(text: str) -> str:
    return " ".join(text.split()).casefold()
