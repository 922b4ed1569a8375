"""Finding a quote in a document's text. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

MOST_QUOTE_CHARS = 2_000
_ALIKE = ("'‘’‚‛`´", '"“”„‟«»', "-‐‑‒–—−")
"""Characters that models swap when they copy: quotation marks and dashes."""
_CLASSES = {char: f"[{re.escape(group)}]" for group in _ALIKE for char in group}


@dataclass(frozen=True, slots=True)
class Span:
    start: int
    end: int


def find_quote(quote: str, text: str) -> Span | None:
    """Where the quote stands: white space folded, typographic quotation marks and dashes equal to plain ones, case exact.

    The span holds the document's own characters, at most MOST_QUOTE_CHARS of them.
    """
    words = quote.strip().split()
    if not words:
        return None
    exact = text.find(quote.strip())
    if exact >= 0:
        return Span(exact, exact + min(len(quote.strip()), MOST_QUOTE_CHARS))
    pattern = r"\s+".join("".join(_CLASSES.get(char, re.escape(char)) for char in word) for word in words)
    found = re.search(pattern, text)
    return Span(found.start(), min(found.end(), found.start() + MOST_QUOTE_CHARS)) if found else None
