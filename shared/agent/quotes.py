"""Finding a quote in a document's text: in time linear in the text, whatever both are made of. Pure."""

from __future__ import annotations

from dataclasses import dataclass

MOST_QUOTE_CHARS = 2_000
_ALIKE = str.maketrans(
    {char: group[0] for group in ("'‘’‚‛`´", '"“”„‟«»', "-‐‑‒–—−") for char in group[1:]}
)
"""Characters that models swap when they copy: quotation marks and dashes. One for one, so that offsets stay."""


@dataclass(frozen=True, slots=True)
class Span:
    start: int
    end: int


def folded(text: str) -> str:
    """The text as it is compared: white space is one space, typographic quotation marks and dashes are plain ones; case stays."""
    return " ".join(text.translate(_ALIKE).split())


def find_quote(quote: str, text: str) -> Span | None:
    """Where the quote stands in the text, both folded. Documents are hostile: a regular expression here could be made to run for hours.

    The span holds the document's own characters, at most MOST_QUOTE_CHARS of them.
    """
    wanted = folded(quote)
    if not wanted:
        return None
    start = text.find(quote.strip())
    if start >= 0:
        return Span(start, start + min(len(quote.strip()), MOST_QUOTE_CHARS))
    words = folded(text)
    at = words.find(wanted)
    if at < 0:
        return None
    start, end = _unfolded(at, words, text), _unfolded(at + len(wanted) - 1, words, text) + 1
    return Span(start, min(end, start + MOST_QUOTE_CHARS))


def _unfolded(at: int, words: str, text: str) -> int:
    """Where a character of the folded text stands in the text: in the same word, as far from the word's beginning."""
    number = words.count(" ", 0, at)
    in_word = at - (words.rfind(" ", 0, at) + 1)
    return len(text) - len(text.split(maxsplit=number)[number]) + in_word
