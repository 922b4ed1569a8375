"""Search for a model's quote in a document. Pure.

Documents may be hostile, so every step takes time linear in the text. No regular expression
here backtracks over more than the run of characters that it matches.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate

MOST_QUOTE_CHARS = 2_000
_SHORT_CHARS = 4
"""A shorter quote must stand between word boundaries: "5" is no quote from "15"."""
_LIKE = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛´", "'"),
        **dict.fromkeys("“”„‟«»", '"'),
        **dict.fromkeys("‐‑‒–—−", "-"),
    }
)
"""Quotation marks and dashes that models swap when they copy. The length of a text stays."""
_LETTER = r"[^\W\d_]"
_SOFT_HYPHEN_AT_LINE_END = re.compile(r"\u00ad(?=\s)")
_APOSTROPHE = re.compile(rf"(?<={_LETTER})`(?={_LETTER})")
_INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200b\u200c\u200d\u2060\ufeff"))
"""Soft hyphens and characters without width."""
_NUMERIC_FORMS = ("<super>", "<sub>", "<fraction>", "<circle>")
"""Compatibility forms that stay as they are, because they change a number: 10² is not 102."""
_MOST_MARKS = 30
"""Combining marks normalized at once. Source: the Stream-Safe Text Format of UAX #15, section
13.

`unicodedata.normalize` sorts a run of marks in quadratic time.
"""
_MOST_GROWTH = 6
"""Most characters that replace one character. The few characters that need more (U+FDFA needs
18) stay as they are.
"""
_MARKDOWN = re.compile(
    r"""(
      (?<![\s\d*_`])[*_`]++(?=\S)         # emphasis and code: not between spaces or digits
    | (?<=\d)[*_`]++(?=[^\s\d])
    | (?<=[^\s*_`])[*_`]++(?!\S)
    | (?<!\S)[*_`]++(?=\S)
    | ~~
    | !?\[(?=[^\[\]\n]*+\]\([^()\s]*+\))  # the beginning and the end of a link
    | \]\([^()\s]*+\)
    | (?<=\n)[ ]{0,3}>[> ]*+(?=[^\s\d])    # a line of a block quote; "> 5" may be a comparison
    | \\(?=[*_`~\[\]()#>])                # the backslash of an escaped mark
    )""",
    re.VERBOSE,
)
_HYPHENATION = re.compile(
    rf"((?<={_LETTER})-\s*+(?={_LETTER})"  # between letters: "well-\nknown", "well-known"
    r"|(?<=\w-)\s++(?=\w))"  # after a hyphen that stays: "2019-\n2020"
)
_SPACES = re.compile(r"(\s{2,}|[^\S ])")
_EDGE = re.compile(rf"[\s*_`]*+(?:-++(?={_LETTER}))?")


@dataclass(frozen=True, slots=True)
class Span:
    start: int
    end: int


class _Pass:
    """A text in which the matches of a pattern are replaced. It knows the old place of each
    character.
    """

    def __init__(self, text: str, pattern: re.Pattern[str], new: Callable[..., str]) -> None:
        """Replace matches of `pattern` in the text.

        Args:
            pattern: has one group around the whole pattern.
            new: returns the replacement of a match.
        """
        pieces = pattern.split(text)
        self._old_ends = _ends(pieces)
        pieces[1::2] = map(new, pieces[1::2])
        self._new_ends = _ends(pieces)
        self.text = "".join(pieces)

    def source(self, span: Span) -> Span:
        """Return the span in the old text of a non-empty span in the new text."""
        return Span(self._source(span.start).start, self._source(span.end - 1).end)

    def _source(self, index: int) -> Span:
        piece = bisect_right(self._new_ends, index)
        old_start = 0
        if piece:
            old_start = self._old_ends[piece - 1]
        if piece % 2:
            return Span(old_start, self._old_ends[piece])
        new_start = 0
        if piece:
            new_start = self._new_ends[piece - 1]
        start = old_start + index - new_start
        return Span(start, start + 1)


class FoldedText:
    """A document in which quotes are searched, also in a folded form of its text.

    The text is folded at the first quote that does not stand in it character by character.
    Folding makes white space one space, and quotation marks and dashes plain ones. It brings
    characters to NFKC, except superscripts, subscripts, fractions and circled numbers. It
    drops soft hyphens, hyphens between letters, also at the end of a line, and Markdown's
    marks of emphasis, code, links, block quotes and escapes. It does not change case.
    """

    def __init__(self, text: str) -> None:
        self.text = text

    def find(self, quote: str) -> Span | None:
        """Return the span of the quote in the document, or None.

        The span holds the document's own characters, at most MOST_QUOTE_CHARS. A quote without
        a letter or a digit proves nothing and is never found.
        """
        if not any(map(str.isalnum, quote)):
            return None
        plain = quote.strip()
        start = _position(plain, self.text)
        if start >= 0:
            return _at_most(Span(start, start + len(plain)))
        wanted = _fold_quote(quote)
        if wanted:
            start = _position(wanted, self._passes[-1].text)
        else:
            start = -1
        if start < 0:
            return None
        span = Span(start, start + len(wanted))
        for step in reversed(self._passes):
            span = step.source(span)
        return _at_most(span)

    @cached_property
    def _passes(self) -> tuple[_Pass, ...]:
        return _passes(self.text)


def _fold_quote(quote: str) -> str:
    """Return the quote folded as in `FoldedText`, without spaces, marks and hyphens at its
    edges.

    The character before or after the quote decides whether such a mark stays in the folded
    document. This character is not known here.
    """
    text = _passes(quote)[-1].text
    text = text[_edge(text) :]
    return text[: len(text) - _edge(text[::-1])]


def _edge(text: str) -> int:
    """Return the number of spaces, marks and hyphens at the beginning of a folded quote."""
    match = _EDGE.match(text)
    if match:
        return match.end()
    return 0


def _passes(text: str) -> tuple[_Pass, ...]:
    text = _SOFT_HYPHEN_AT_LINE_END.sub("-", text.translate(_LIKE))
    text = _APOSTROPHE.sub("'", text)
    passes = list[_Pass]()
    if not text.isascii():
        tables = _tables()
        if tables.mark.search(text):
            pattern = tables.clusters
        else:
            pattern = tables.changed
        passes.append(_Pass(text, pattern, cache(_normal)))
        text = passes[-1].text
    for pattern, new in ((_MARKDOWN, ""), (_HYPHENATION, ""), (_SPACES, " ")):
        passes.append(_Pass(text, pattern, lambda _, new=new: new))
        text = passes[-1].text
    return tuple(passes)


def _normal(cluster: str) -> str:
    visible = cluster.translate(_INVISIBLE)
    is_number = any(unicodedata.decomposition(c).startswith(_NUMERIC_FORMS) for c in visible)
    normal = unicodedata.normalize("NFC" if is_number else "NFKC", visible).translate(_LIKE)
    if len(normal) <= _MOST_GROWTH * len(cluster):
        return normal
    return cluster


@dataclass(frozen=True, slots=True)
class _Tables:
    """Patterns of characters that normalization may change."""

    mark: re.Pattern[str]
    """A combining mark."""
    changed: re.Pattern[str]
    """A character that is not in NFKC. Faster to search for than `clusters`."""
    clusters: re.Pattern[str]
    """A character with combining marks, or a character that is not in NFKC."""


@cache
def _tables() -> _Tables:
    """Return the patterns. The first call compiles them in about 0.1 s."""
    marks, changed = list[int](), list(_INVISIBLE)
    for code in range(0x80, 0x10000):
        char = chr(code)
        if unicodedata.category(char).startswith("M") or 0x1160 <= code <= 0x11FF:
            marks.append(code)
        elif code not in _INVISIBLE and _normal(char) != char:
            changed.append(code)
    beyond = range(0x10000, 0x30000)  # the whole planes: many ranges would make the search slow
    mark, other = _char_class(marks), _char_class([*sorted(changed), *beyond])
    return _Tables(
        mark=re.compile(mark),
        changed=re.compile(f"({other})"),
        clusters=re.compile(rf"(.{mark}{{1,{_MOST_MARKS}}}|{other})", re.DOTALL),
    )


def _char_class(codes: Iterable[int]) -> str:
    """Return a character class of these code points, which are in ascending order."""
    ranges = list[list[int]]()
    for code in codes:
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "[" + "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges) + "]"


def _ends(pieces: list[str]) -> array[int]:
    """Return the end of each piece in the joined text."""
    return array("I", accumulate(map(len, pieces)))


def _position(wanted: str, text: str) -> int:
    """Return the index of the first occurrence, or -1. See `_SHORT_CHARS`."""
    if len(wanted) >= _SHORT_CHARS:
        return text.find(wanted)
    edge = "[0-9A-Za-z]"
    before = ""
    if re.match(edge, wanted):
        before = f"(?<!{edge})"
    after = ""
    if re.match(edge, wanted[-1:]):
        after = f"(?!{edge})"
    match = re.search(before + re.escape(wanted) + after, text)
    if match:
        return match.start()
    return -1


def _at_most(span: Span) -> Span:
    return Span(span.start, min(span.end, span.start + MOST_QUOTE_CHARS))
