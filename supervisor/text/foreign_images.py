"""Images of other hosts in Markdown. A viewer would fetch them at once, so the URL of an image can
carry data out. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_REMOTE = r"\s*<?\s*(?:https?:)?[/\\]{2}"
_INLINE = re.compile(rf"!(?=\[[^\n]{{0,2000}}?\]\({_REMOTE})", re.IGNORECASE)
_DEFINITION = re.compile(rf"^ {{0,3}}\[([^\[\]\n]+)\]:{_REMOTE}", re.IGNORECASE | re.MULTILINE)
_REFERENCE = re.compile(r"!(?=\[([^\[\]\n]*)\](?:\[([^\[\]\n]*)\])?)")
_ELEMENT = re.compile(
    rf"<(?=[a-z][^<>]{{0,4000}}?(?:src|srcset|href|data|poster|style)\s*="
    rf"[^<>]{{0,4000}}?(?:{_REMOTE}|&[#a-z]|[/\\]\s+[/\\]))",
    re.IGNORECASE,
)
"""A URL may have character references (`&#104;`), and browsers ignore line breaks in it."""
_FOREIGN = re.compile(r"(?!data:)[a-z][a-z0-9+.-]*:|[/\\]{2}", re.IGNORECASE)
_MAX_NESTING = 100
"""Quotations and lists in each other. An answer with deeper ones counts as one with images."""


def without_foreign_images(text: str) -> str:
    """Return the Markdown with images of other hosts, and HTML elements with a URL, as plain text.

    The URL stays visible, and a reader can follow it.
    """
    text = _without_usual_images(text)
    # Markdown has more forms of an image than a pattern can name.
    if "![" in text and _shows_foreign_image(text):
        return text.replace("![", "&#33;[")
    return text


def _without_usual_images(text: str) -> str:
    text = _ELEMENT.sub("&lt;", _INLINE.sub(r"\\!", text))
    labels = {_label(match) for match in _DEFINITION.findall(text)}
    if not labels:
        return text

    def escape_image(match: re.Match[str]) -> str:
        if _label(match[2] or match[1]) in labels:
            return "\\!"
        return match[0]

    return _REFERENCE.sub(escape_image, text)


def _label(text: str) -> str:
    return " ".join(text.split()).casefold()


def _shows_foreign_image(text: str) -> bool:
    try:
        tokens = _markdown().parse(text)
    except RecursionError:
        return True
    if any(token.level >= _MAX_NESTING - 1 for token in tokens):
        return True
    return any(_FOREIGN.match(source.strip()) for source in _images_in(tokens))


def _images_in(tokens: Iterable[Token]) -> Iterator[str]:
    """Yield the addresses of the images, with their character references replaced."""
    for token in tokens:
        if token.type == "image":
            yield str(token.attrs.get("src", ""))
        yield from _images_in(token.children or ())


@cache
def _markdown() -> MarkdownIt:
    """Return the parser. The import is late, because most answers have no image."""
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"maxNesting": _MAX_NESTING}).enable("table")
