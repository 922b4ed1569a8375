"""Removal of characters and images that a terminal, a page or a viewer would obey, from text of
other authors. Pure.

A viewer would fetch the images of other hosts at once, so the URL of an image can carry data out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token
    from pydantic import JsonValue

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Control characters other than tab and line feed, which include terminal escapes. Characters that
change the reading direction. U+2028 and U+2029, at which some programs end a line.
"""
_REMOTE = r"\s*+(?:<\s*+)?+(?:https?:)?+[/\\]{2}"
"""Beginning of the address of another host. The pattern does not backtrack, because two
neighbouring patterns of blanks would take hours for 100,000 blanks.
"""
_INLINE = re.compile(rf"!(?=\[[^\n]{{0,2000}}?\]\({_REMOTE})", re.IGNORECASE)
"""An inline image of another host: `![text](https://...`."""
_DEFINITION = re.compile(rf"^ {{0,3}}\[([^\[\]\n]+)\]:{_REMOTE}", re.IGNORECASE | re.MULTILINE)
"""The definition of a link to another host: `[label]: https://...`."""
_REFERENCE = re.compile(r"!(?=\[([^\[\]\n]*)\](?:\[([^\[\]\n]*)\])?)")
"""An image with a label: `![text][label]` or `![label]`."""
_HTML = re.compile(r"<(?=[a-z/!?])", re.IGNORECASE)
"""The beginning of each form of HTML that Markdown and browsers know."""
_STYLE_OR_SCRIPT = re.compile(r"<(?=style|script)", re.IGNORECASE)
"""The beginning of an element that needs no attribute to fetch something."""
_BACKTICKS = re.compile(r"`+")
_FOREIGN = re.compile(r"(?!data:)[a-z][a-z0-9+.-]*:|[/\\]{2}", re.IGNORECASE)
"""Beginning of a URL that a viewer fetches. `data:` has the image itself."""
_MAX_NESTING = 100
"""Quotations and lists in each other. An answer with deeper ones counts as one with images."""
MAX_IMAGES = 100
MAX_PARSED_CHARS = 100_000
MAX_BRACKETS = 5_000
"""Bounds of an answer whose images are looked at one by one. The parser takes a second for 100,000
characters, and for 5,000 brackets. In larger answers all images become text.
"""


def replace_unsafe(text: str) -> str:
    """Return the text with U+FFFD in place of each unsafe character. It is not escaped for HTML."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def flatten_to_line(text: str) -> str:
    """Return the safe text on one line, with single spaces."""
    return " ".join(replace_unsafe(text).split())


def escape_unsafe_in_json(text: str) -> str:
    """Return the same JSON with unsafe characters in its strings as escapes."""

    def escape(unsafe: re.Match[str]) -> str:
        return f"\\u{ord(unsafe[0]):04x}"

    return _CONTROL.sub(escape, text)


def without_foreign_images(text: str) -> str:
    """Return the Markdown with images of other hosts, and HTML outside of code, as plain text.

    The URL stays visible, and a reader can follow it.
    """
    if text.count("![") > MAX_IMAGES:
        text = _without_images(text)
    text = _without_html(_without_usual_images(text))
    # Markdown has more forms of an image than a pattern can name.
    if "![" in text and (_is_large(text) or _shows_foreign_image(text)):
        return _without_images(text)
    return text


def clean_form(form: JsonValue) -> JsonValue:
    """Return the JSON value without images of other hosts, and without HTML that can fetch
    something, in its strings and names. A page may show a string as Markdown.

    Other HTML stays: a string of a form can be code (`List<String>`), or an address
    (`Ann <ann@example.com>`). In a value with too many or too large texts, all images become text.
    """
    text = json.dumps(form, ensure_ascii=False)
    is_large = _is_large(text) or text.count("![") > MAX_IMAGES
    return _clean_strings(form, is_large=is_large)


def _clean_strings(form: JsonValue, *, is_large: bool) -> JsonValue:
    if isinstance(form, str):
        return _clean_string(form, is_large=is_large)
    if isinstance(form, list):
        return [_clean_strings(item, is_large=is_large) for item in form]
    if isinstance(form, dict):
        members: dict[str, JsonValue] = {}
        for name, item in form.items():
            clean_name = _clean_string(name, is_large=is_large)
            members[clean_name] = _clean_strings(item, is_large=is_large)
        return members
    return form


def _clean_string(text: str, *, is_large: bool) -> str:
    if "<" in text:
        text = _without_attributes(text)
    if "![" not in text:
        return text
    if is_large:
        return _without_images(text)
    text = _without_usual_images(text)
    # A viewer may obey HTML or show it as text, and the other images depend on that.
    if _shows_foreign_image(text) or _shows_foreign_image(_HTML.sub("&lt;", text)):
        return _without_images(text)
    return text


def _without_attributes(text: str) -> str:
    """Return the text with `&lt;` at the beginning of HTML with attributes, styles and scripts.

    The first `=` of an element comes before the first `>`, because only a value can have `>`.
    """
    parts: list[str] = []
    for part in text.split(">"):
        attributes, sign, rest = part.rpartition("=")
        parts.append(_HTML.sub("&lt;", attributes) + sign + rest)
    return _STYLE_OR_SCRIPT.sub("&lt;", ">".join(parts))


def _without_images(text: str) -> str:
    return text.replace("![", "&#33;[")


def _is_large(text: str) -> bool:
    return len(text) > MAX_PARSED_CHARS or text.count("[") > MAX_BRACKETS


def _without_html(text: str) -> str:
    """Return the text with `&lt;` at the beginning of HTML. HTML between backticks stays, if a
    viewer shows it as code.
    """
    if not _is_large(text):
        parts: list[str] = []
        end_of_last = 0
        for start, end in _iterate_code(text):
            parts += (_HTML.sub("&lt;", text[end_of_last:start]), text[start:end])
            end_of_last = end
        escaped = "".join(parts) + _HTML.sub("&lt;", text[end_of_last:])
        if not _HTML.search(escaped) or not _shows_html(escaped):
            return escaped
    return _HTML.sub("&lt;", text)


def _iterate_code(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each text between two equal runs of backticks."""
    runs = list(_BACKTICKS.finditer(text))
    next_by_length: dict[int, int] = {}
    closing: list[int | None] = []
    for place in reversed(range(len(runs))):
        length = len(runs[place][0])
        closing.append(next_by_length.get(length))
        next_by_length[length] = place
    closing.reverse()
    place = 0
    while place < len(runs):
        end = closing[place]
        if end is not None:
            yield runs[place].start(), runs[end].end()
            place = end
        place += 1


def _shows_html(text: str) -> bool:
    tokens = _parse(text)
    if tokens is None:
        return True
    kinds = {token.type for token in _iterate_with_children(tokens)}
    return not kinds.isdisjoint(("html_block", "html_inline"))


def _without_usual_images(text: str) -> str:
    text = _INLINE.sub(r"\\!", text)
    labels = {_build_label(match) for match in _DEFINITION.findall(text)}
    if not labels:
        return text

    def escape_image(match: re.Match[str]) -> str:
        if _build_label(match[2] or match[1]) in labels:
            return "\\!"
        return match[0]

    return _REFERENCE.sub(escape_image, text)


def _build_label(text: str) -> str:
    return " ".join(text.split()).casefold()


def _shows_foreign_image(text: str) -> bool:
    tokens = _parse(text)
    if tokens is None:
        return True
    for token in _iterate_with_children(tokens):
        if token.type == "image" and _FOREIGN.match(str(token.attrs.get("src", "")).strip()):
            return True
    return False


def _parse(text: str) -> list[Token] | None:
    """Return the tokens with character references replaced. None: they are nested too deeply."""
    try:
        tokens = _create_parser().parse(text)
    except RecursionError:
        return None
    if any(token.level >= _MAX_NESTING - 1 for token in tokens):
        return None
    return tokens


def _iterate_with_children(tokens: Iterable[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _iterate_with_children(token.children or ())


@cache
def _create_parser() -> MarkdownIt:
    """Return the parser. The import is late, because most answers have no image."""
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"maxNesting": _MAX_NESTING}).enable("table")
