"""The search of a quote in a text. White space, quotation marks, dashes, Markdown and hyphenation
may differ. Pure.

Documents may be hostile, so every step takes time linear in the text. No regular expression
here backtracks over more than the run of characters that it matches.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate, islice

MAX_QUOTE_CHARS = 2_000
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
_MAX_MARKS = 30
"""Combining marks normalized at once. Source: the Stream-Safe Text Format of UAX #15, section
13.

`unicodedata.normalize` sorts a run of marks in quadratic time.
"""
_MAX_GROWTH = 6
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
    | \\(?=[*_`~\[\]()#>"])               # the backslash of an escaped mark
    | (?<=<)\\(?=/)                       # the backslash of an escaped tag
    )""",
    re.VERBOSE,
)
_HYPHENATION = re.compile(
    rf"((?<={_LETTER})-\s*+(?={_LETTER})"  # between letters: "well-\nknown", "well-known"
    r"|(?<=\w-)\s++(?=\w))"  # after a hyphen that stays: "2019-\n2020"
)
_ELLIPSIS = re.compile(r"\[?(?:\.{3,}|…)\]?")
MAX_PASSAGE_CHARS = 600
"""Longest passage of which a quote has only the beginning and the end."""
_MIN_SIDE_CHARS = 3
"""Letters and digits of the beginning and of the end of a passage, at least."""
_MAX_PASSAGES = 1_000
"""Passages that a search looks at."""
_WITHOUT_SPACES = re.compile("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u2e80-\U0010ffff]")
"""A character of a script without spaces between words: of Thai, Lao, Tibetan, Burmese, Khmer,
Chinese, Japanese and others.
"""
_FIGURE_SEPARATOR = re.compile(r"(?<=\d)[.,'’٫٬\u00a0\u2007\u2009\u202f](?=\d)")
"""A decimal point, or a separator of thousands, in a figure."""
_BEFORE_DIGITS = re.compile(r"(?:(?<![^\W_])(?<![)\]}%°+\-])[+\-±−–]|(?<![\w.)\]}])\.)(?=\.?\d)")
"""A sign, or a decimal point without a digit before it. A hyphen after a letter or a digit is
not a sign.
"""
_REST_OF_WORD = re.compile(rf"(?<={_LETTER})['’](?={_LETTER})")
"""The apostrophe in "can't", which is not the end of "can"."""
_MAY_JOIN = frozenset("*_`~[]()\\-\u00ad\u200b\u200c\u200d\u2060\ufeff")
"""Characters that folding may remove, so that the letters on both sides belong to one word."""
_SEARCHED_CHARS = 200_000
"""Characters of all occurrences of a quote that are looked at."""
_BLANK_LINE = re.compile(r"\n\s*\n")
_SPACES = re.compile(r"(\s{2,}|[^\S ])")
_EDGE = re.compile(rf"[\s*_`]*+(?:-++(?={_LETTER}))?")


@dataclass(frozen=True, slots=True)
class QuoteSpan:
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
        self._old_ends = _compute_ends(pieces)
        pieces[1::2] = map(new, pieces[1::2])
        self._new_ends = _compute_ends(pieces)
        self.text = "".join(pieces)

    def map_to_source(self, span: QuoteSpan) -> QuoteSpan:
        """Return the span in the old text of a non-empty span in the new text."""
        return QuoteSpan(
            self._map_to_source(span.start).start, self._map_to_source(span.end - 1).end
        )

    def _map_to_source(self, index: int) -> QuoteSpan:
        piece = bisect_right(self._new_ends, index)
        old_start = 0
        if piece:
            old_start = self._old_ends[piece - 1]
        if piece % 2:
            return QuoteSpan(old_start, self._old_ends[piece])
        new_start = 0
        if piece:
            new_start = self._new_ends[piece - 1]
        start = old_start + index - new_start
        return QuoteSpan(start, start + 1)


class FoldedText:
    """A document in which quotes are searched, also in a folded form of its text.

    The text is folded at the first quote that is not in it character by character.
    Folding makes white space one space, and quotation marks and dashes plain ones. It brings
    characters to NFKC, except superscripts, subscripts, fractions and circled numbers. It
    drops soft hyphens, hyphens between letters, also at the end of a line, and Markdown's
    marks of emphasis, code, links, block quotes and escapes. It does not change case. Only the
    first letter of a quote with several words may have another case than in the document.
    """

    def __init__(self, text: str) -> None:
        self.text = text

    def find(self, quote: str) -> QuoteSpan | None:
        """Return the span of the quote in the document, or None.

        The span holds the document's own characters, at most MAX_QUOTE_CHARS. A quote without
        a letter or a digit proves nothing and is never found.
        """
        if not any(map(str.isalnum, quote)):
            return None
        plain = quote.strip()
        for start in _iterate_occurrences(plain, self.text):
            span = QuoteSpan(start, start + len(plain))
            if not _is_cut(span, self.text) and not self._may_join(span):
                return _cap_quote_length(span)
        folded_quote = _fold_quote(quote)
        if not folded_quote:
            return None
        span_of_quote = self._find_folded(folded_quote)
        with_other_case = _with_other_first_case(folded_quote)
        if span_of_quote is None and with_other_case is not None:
            span_of_quote = self._find_folded(with_other_case)
        return span_of_quote

    def _find_folded(self, quote: str) -> QuoteSpan | None:
        """Return the span in the document of a folded quote, or None."""
        folded_text = self._passes[-1].text
        for start in _iterate_occurrences(quote, folded_text):
            folded_span = QuoteSpan(start, start + len(quote))
            if _is_cut(folded_span, folded_text):
                continue
            span = self._map_to_source(folded_span)
            if not _is_cut(span, self.text):
                return _cap_quote_length(span)
        return None

    def _may_join(self, span: QuoteSpan) -> bool:
        """Return whether folding may join the text of a span with the text around it."""
        around = {
            self.text[max(0, span.start - 1) : span.start],
            self.text[span.end : span.end + 1],
        }
        return not around.isdisjoint(_MAY_JOIN)

    def find_passage(self, quote: str) -> QuoteSpan | None:
        """Return the span of a passage of which the quote has only the first and the last words.
        An ellipsis is between them, as in "Three pumps ... in 2019".

        Return None if no paragraph has such a passage, or if there are several with different
        words. Of equal passages, return the first.
        """
        begin, ellipsis, end = _split_at_ellipsis(quote)
        begin, end = _fold_quote(begin), _fold_quote(end)
        if not ellipsis or min(map(_count_letters, (begin, end))) < _MIN_SIDE_CHARS:
            return None
        spans = list(self._iterate_passages(begin, end))
        with_other_case = _with_other_first_case(begin)
        if not spans and with_other_case is not None:
            spans = list(self._iterate_passages(with_other_case, end))
        texts = {tuple(self.text[span.start : span.end].split()) for span in spans}
        if len(texts) == 1:
            return spans[0]
        return None

    def _iterate_passages(self, begin: str, end: str) -> Iterator[QuoteSpan]:
        """Yield each passage of a paragraph between folded words."""
        passages = _iterate_passages(self._passes[-1].text, begin, end)
        for passage in islice(passages, _MAX_PASSAGES):
            span = self._map_to_source(passage)
            has_blank_line = _BLANK_LINE.search(self.text, span.start, span.end)
            if not has_blank_line and not _is_cut(span, self.text):
                yield _cap_quote_length(span)

    def _map_to_source(self, span: QuoteSpan) -> QuoteSpan:
        """Return the span in the document of a span in the folded text."""
        for step in reversed(self._passes):
            span = step.map_to_source(span)
        return span

    @cached_property
    def _passes(self) -> tuple[_Pass, ...]:
        return _build_passes(self.text)


def _split_at_ellipsis(quote: str) -> tuple[str, str, str]:
    """Return the text before the only ellipsis of a quote, the ellipsis, and the text after it.
    The ellipsis is empty if there is none, or more than one.
    """
    matches = list(_ELLIPSIS.finditer(quote))
    if len(matches) != 1:
        return quote, "", ""
    ellipsis = matches[0]
    return quote[: ellipsis.start()], ellipsis[0], quote[ellipsis.end() :]


def _count_letters(text: str) -> int:
    """Return the number of letters and digits."""
    return sum(map(str.isalnum, text))


def _iterate_passages(text: str, begin: str, end: str) -> Iterator[QuoteSpan]:
    """Yield each shortest passage of a folded text from these words to those, which are whole. Each
    character is searched once for either side, so the time is linear in the length.
    """
    start, last = _next_words(begin, text, 0), 0
    while start >= 0:
        following = _next_words(begin, text, start + 1)
        last = max(last, start + len(begin))
        last = _next_words(end, text, last)
        if last < 0:
            return
        stop = last + len(end)
        has_shorter = following >= 0 and following + len(begin) <= last
        if not has_shorter and stop - start <= MAX_PASSAGE_CHARS:
            yield QuoteSpan(start, stop)
        start = following


def _next_words(words: str, text: str, position: int) -> int:
    """Return the index of the next occurrence that cuts no word and no figure, or -1."""
    start = text.find(words, position)
    while start >= 0 and _is_cut(QuoteSpan(start, start + len(words)), text):
        start = text.find(words, start + 1)
    return start


def _iterate_occurrences(quote: str, text: str) -> Iterator[int]:
    """Yield the index of each occurrence. Occurrences may overlap, so their number is limited."""
    start = text.find(quote)
    for _ in range(_SEARCHED_CHARS // len(quote)):
        if start < 0:
            return
        yield start
        start = text.find(quote, start + 1)


def _is_cut(span: QuoteSpan, text: str) -> bool:
    """Return whether a span begins or ends inside a word or a figure. "5" is a part of "15", "4.5",
    "21,5" and "-5", and "can" is a part of "can't".
    """
    if _is_within_word(text, span.start) or _is_within_word(text, span.end):
        return True
    if _FIGURE_SEPARATOR.match(text, span.end) or _REST_OF_WORD.match(text, span.end):
        return True
    before = span.start - 1
    if before < 0:
        return False
    has_separator = _FIGURE_SEPARATOR.match(text, before, span.start + 1) is not None
    return has_separator or _BEFORE_DIGITS.match(text, before, span.start + 2) is not None


def _is_within_word(text: str, index: int) -> bool:
    """Return whether the characters before and at an index belong to one word or number. Chinese
    and Japanese have no spaces between words.
    """
    around = text[index - 1 : index + 1] if index else ""
    if len(around) < 2 or not all(map(_is_part_of_word, around)):
        return False
    return around.isdecimal() or not _WITHOUT_SPACES.search(around)


def _is_part_of_word(character: str) -> bool:
    """Return whether a character is a letter, a digit, or a mark of a letter."""
    return character.isalnum() or unicodedata.category(character).startswith("M")


def _fold_quote(quote: str) -> str:
    """Return the quote folded as in `FoldedText`, without spaces, marks and hyphens at its
    edges.

    The character before or after the quote decides whether such a mark stays in the folded
    document. This character is not known here.
    """
    text = _build_passes(quote)[-1].text
    text = text[_count_edge_characters(text) :]
    return text[: len(text) - _count_edge_characters(text[::-1])]


def _count_edge_characters(text: str) -> int:
    """Return the number of spaces, marks and hyphens at the beginning of a folded quote."""
    match = _EDGE.match(text)
    if match:
        return match.end()
    return 0


def _build_passes(text: str) -> tuple[_Pass, ...]:
    text = _SOFT_HYPHEN_AT_LINE_END.sub("-", text.translate(_LIKE))
    text = _APOSTROPHE.sub("'", text)
    passes = list[_Pass]()
    if not text.isascii():
        tables = _compile_tables()
        if tables.mark.search(text):
            pattern = tables.clusters
        else:
            pattern = tables.changed_char
        passes.append(_Pass(text, pattern, cache(_normalize_cluster)))
        text = passes[-1].text
    for pattern, new in ((_MARKDOWN, ""), (_HYPHENATION, ""), (_SPACES, " ")):
        passes.append(_Pass(text, pattern, lambda _, new=new: new))
        text = passes[-1].text
    return tuple(passes)


def _normalize_cluster(cluster: str) -> str:
    """Return the form in which a character with its marks is compared. A form that is much longer
    is not used.
    """
    visible = cluster.translate(_INVISIBLE)
    decompositions = [unicodedata.decomposition(character) for character in visible]
    is_number = any(text.startswith(_NUMERIC_FORMS) for text in decompositions)
    normal = unicodedata.normalize("NFC" if is_number else "NFKC", visible)
    normal = normal.translate(_LIKE)
    if len(normal) <= _MAX_GROWTH * len(cluster):
        return normal
    return cluster


@dataclass(frozen=True, slots=True)
class _Tables:
    """Patterns of characters that normalization may change."""

    mark: re.Pattern[str]
    """A combining mark."""
    changed_char: re.Pattern[str]
    """A character that is not in NFKC. Faster to search for than `clusters`."""
    clusters: re.Pattern[str]
    """A character with combining marks, or a character that is not in NFKC."""


@cache
def _compile_tables() -> _Tables:
    """Return the patterns. The first call compiles them in about 0.1 s."""
    marks: list[int] = []
    changed_chars = list(_INVISIBLE)
    for code in range(0x80, 0x10000):
        char = chr(code)
        if unicodedata.category(char).startswith("M") or 0x1160 <= code <= 0x11FF:
            marks.append(code)
        elif code not in _INVISIBLE and _normalize_cluster(char) != char:
            changed_chars.append(code)
    beyond = range(0x10000, 0x30000)  # the whole planes: many ranges would make the search slow
    mark = _build_char_class(marks)
    other = _build_char_class([*sorted(changed_chars), *beyond])
    return _Tables(
        mark=re.compile(mark),
        changed_char=re.compile(f"({other})"),
        clusters=re.compile(rf"(.{mark}{{1,{_MAX_MARKS}}}|{other})", re.DOTALL),
    )


def _build_char_class(codes: Iterable[int]) -> str:
    """Return a character class of these code points, which are in ascending order."""
    ranges = list[list[int]]()
    for code in codes:
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "[" + "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges) + "]"


def _compute_ends(pieces: list[str]) -> array[int]:
    """Return the end of each piece in the joined text."""
    return array("I", accumulate(map(len, pieces)))


def _with_other_first_case(quote: str) -> str | None:
    """Return a quote of several words with the other case of its first letter. None: it has
    one word, or its first character has no other case of the same length.
    """
    first = quote[0].swapcase()
    if " " not in quote or first == quote[0] or len(first) > 1:
        return None
    return first + quote[1:]


def _cap_quote_length(span: QuoteSpan) -> QuoteSpan:
    return QuoteSpan(span.start, min(span.end, span.start + MAX_QUOTE_CHARS))
