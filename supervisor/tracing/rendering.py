"""Answers as HTML: Markdown rendered without raw HTML, images and foreign links, and sources that can be linked to.

Everything here is text that models, tools and documents wrote. Only this module turns it into markup.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_core import StateCore
    from markdown_it.token import Token

_NUMBER = re.compile(r"\[(\d{1,6})\]")
_WEB = re.compile(r"https?://[^\s/]", re.IGNORECASE)
_REL = "noopener noreferrer nofollow"
_MOST_TITLE_CHARS = 300


def answer_html(
    answer: JsonValue,
    citations: Sequence[Mapping[str, Any]],
    prefix: str,
    *,
    is_form: bool = False,
) -> str:
    """Return an answer as HTML.

    `answer`: Markdown, or the JSON value of an answer with a schema.
    `citations`: as in `JobResult.citations`. `[n]` becomes a link to the source `PREFIX-source-n`.
    `prefix`: makes the ids of one answer unique in its page.
    `is_form`: whether a text, too, is a JSON value and no Markdown.
    """
    if is_form or not isinstance(answer, str):
        return f"<pre>{escape(json.dumps(answer, ensure_ascii=False, indent=2))}</pre>"
    quotes = {one["n"]: f"{one['source']}: \u201c{one['quote']}\u201d" for one in citations}
    return str(_markdown().render(answer, {"prefix": prefix, "quotes": quotes}))


def sources_html(citations: Sequence[Mapping[str, Any]], prefix: str) -> str:
    """Return the numbered sources of an answer as an HTML list: the document, the quote and its statement."""
    return f'<ol class="sources">{"".join(_source(one, prefix) for one in citations)}</ol>'


def source_id(prefix: str, number: int) -> str:
    """Return the id of the element of a source."""
    return f"{prefix}-source-{number}"


def _source(citation: Mapping[str, Any], prefix: str) -> str:
    name = escape(citation["source"])
    if _WEB.match(citation["source"]):
        name = f'<a href="{name}" rel="{_REL}">{name}</a>'
    step = (
        f' <span class="soft">found by {escape(citation["step"])}</span>'
        if citation["step"]
        else ""
    )
    return (
        f'<li id="{escape(source_id(prefix, citation["n"]))}" value="{citation["n"]}">'
        f"<strong>{name}</strong>{step}<blockquote>{escape(citation['quote'])}</blockquote></li>"
    )


@cache
def _markdown() -> MarkdownIt:
    """Build the renderer. The import takes time that no other command should pay."""
    from markdown_it import MarkdownIt

    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    markdown.disable(["image", "reference", "html_block", "html_inline"])
    markdown.validateLink = lambda url: _WEB.match(url) is not None  # type: ignore[method-assign]
    markdown.core.ruler.push("citations", _link_citations)
    markdown.core.ruler.push("attributes", _safe_attributes)
    return markdown


def _link_citations(state: StateCore) -> None:
    """Make a link of each `[n]` that is the number of a source, outside of code and of other links."""
    for block in state.tokens:
        if block.type == "inline" and block.children:
            block.children = list(_linked(block.children, state.env["prefix"], state.env["quotes"]))


def _linked(tokens: Sequence[Token], prefix: str, quotes: Mapping[int, str]) -> Iterator[Token]:
    depth = 0
    for token in tokens:
        depth += token.nesting if token.type in ("link_open", "link_close") else 0
        if token.type != "text" or depth or not _NUMBER.search(token.content):
            yield token
        else:
            yield from _split(token, prefix, quotes)


def _split(token: Token, prefix: str, quotes: Mapping[int, str]) -> Iterator[Token]:
    from markdown_it.token import Token

    end = 0
    for found in _NUMBER.finditer(token.content):
        number = int(found[1])
        if number not in quotes:
            continue
        attributes: dict[str, str | int | float] = {
            "class": "cite",
            "href": f"#{source_id(prefix, number)}",
            "title": " ".join(quotes[number].split())[:_MOST_TITLE_CHARS],
        }
        yield Token("text", "", 0, content=token.content[end : found.start()])
        yield Token("link_open", "a", 1, attrs=attributes)
        yield Token("text", "", 0, content=found[0])
        yield Token("link_close", "a", -1)
        end = found.end()
    yield Token("text", "", 0, content=token.content[end:])


def _safe_attributes(state: StateCore) -> None:
    """Give links out of the page a `rel`, and columns a class: a strict policy refuses inline styles."""
    for block in state.tokens:
        for token in (block, *(block.children or ())):
            if style := token.attrs.pop("style", None):
                token.attrs["class"] = str(style).rpartition(":")[2]
            if token.type == "link_open" and not str(token.attrs["href"]).startswith("#"):
                token.attrs["rel"] = _REL
