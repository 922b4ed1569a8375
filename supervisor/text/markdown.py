"""Blocks of a Markdown text: headings, paragraphs, lists, rows of tables. Pure; what stands inside a block is not parsed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token


def lines_of(text: str) -> list[str]:
    """As Markdown counts them."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def blocks_of(text: str) -> list[Token]:
    """In their order; with the first line and the one behind the last, where they have any."""
    return _markdown().parse("\n".join(lines_of(text)))


def headings_in(text: str) -> Iterator[str]:
    """What the headings of the text itself say: not what stands in code, in quotations and in lists."""
    for token, inside in pairwise(blocks_of(text)):
        if token.type == "heading_open" and token.level == 0:
            yield " ".join(inside.content.split())


@cache
def _markdown() -> MarkdownIt:
    """Finds blocks only: what stands inside them is not looked at, and takes no time. Imported late: no command waits for it."""
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable("table").disable(["inline", "text_join"])
