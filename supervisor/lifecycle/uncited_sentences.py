"""Sentences of an answer that state a fact without a source. Pure.

A sentence states a fact if it has a figure in digits, or equals the text of one of the
answer's claims. An ambiguous sentence passes, because users switch off a gate that vetoes good
answers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from handoff_queue.supervisor.lifecycle.result_texts import UNPROVEN
from handoff_queue.supervisor.text.markdown import has_many_blocks, parse_blocks, split_lines
from handoff_queue.supervisor.text.quantities import is_unit

if TYPE_CHECKING:
    from markdown_it.token import Token

_MARK = re.compile(r"\[(\d{1,4})\](?!\()")
"""Marker of a source, but not the text of a Markdown link."""
_MARK_AT_END = re.compile(r"(\[(?:\d{1,4}|no source)\])[.!?)*_\"” ]*$")
"""Marker at the end of a sentence, before its punctuation."""
_NO_WORDS = re.compile(r"`[^`]*`|<[^<>]*>|\[\d{1,4}\]\(|https?://[^\s)]+")
"""Code, tags, addresses and numbered links: their digits are not figures."""
_CLOSED = re.compile(
    r"[.!?][\"'”’)*_]*((?: ?\[(?:\d{1,4}|no source)\])*) (?=[\"'“‘(*_]*(?:[^\W\d_]|\d|[$€£¥]))"
)
"""Possible end of a sentence; markers of its sources may follow the full stop."""
_SHORT = re.compile(
    r"(?:^|[\s(])(?:[^\W\d_]|e\.g|i\.e|u\.s|etc|vs|cf|ca|approx|dr|mr|mrs|ms|prof|no|nr|fig|st|al|incl|excl|max|min|avg|est|inc|ltd|co|corp"
    r"|z\.b|bzw)$",
    re.IGNORECASE,
)
"""An abbreviation, whose full stop ends nothing."""
_MAX_ABBREVIATION_CHARS = 8
"""Most characters before a full stop that are searched for an abbreviation."""
_FIGURE = re.compile(
    r"(?P<place>\b(?:step|option|part|phase|point|item|question|section|chapter|page|line|table|figure|appendix|schritt|teil|seite) )?"  # noqa: E501
    r"(?P<before>[$€£¥] ?)?(?<![\w.])(?<!\w[-/+])(?P<number>\d(?:[\d.,]*\d)?)(?P<behind>"
    r" ?(?:%|‰|°[CF]|[$€£¥])|[^\W\d_]+| [^\W\d_]+)?",
    re.IGNORECASE,
)
"""A number with its currency, unit or scale. `place`: a word that makes the number a name
("step 3"). An answer has the language of its request, and `supervisor.text.quantities` also
reads German figures. So the German words for the same places and scales are here, too.
"""
_MIN_FIGURE = 10
"""A whole number below it, without a unit, is not a figure: it may be the answer's own count
("the 3 databases").
"""
_SCALES = frozenset(
    "k m bn thousand million billion trillion mio mrd tausend millionen milliarden".split()
)
_WORDS_TOO = frozenset("in a at as to h t b mi mo".split())
"""Words that are also units. Behind a number they do not make it a figure."""
_OPEN = re.compile(
    r"\b(?:not found|no information|unknown|missing|unclear|cannot be|could not be"
    r"|(?:(?:does|do|did|is|are|was|were) not|(?:doesn|don|didn|isn|aren|wasn|weren)['’]t)"
    r" (?:\w+ )?"
    r"(?:say|state|mention|give|given|name|cover|contain|include|found|known|available)"
    r"|no (?:[\w-]+ ){1,8}(?:is|are|was|were|could be)"
    r" (?:said|stated|mentioned|given|named|found|known|available))\b",
    re.IGNORECASE,
)
"""Words of a clause that says that something is unknown. Such a clause needs no source."""
_ASIDE = re.compile(
    r", (?:which|who|whose|where|while|whereas|although|though) ((?:[^,;]|,(?! ))*),(?= )",
    re.IGNORECASE,
)
"""A clause within another one, between commas."""
_VERB = r"(?:is|are|was|were|do|does|did|has|have|had|costs?|takes?|holds?|needs?|began|grew|fell|reached)\b"  # noqa: E501
_A_VERB = re.compile(rf"\b{_VERB}", re.IGNORECASE)
_NEXT = re.compile(
    r"; |, (?:which|who|whose|where|so|yet) |"
    r",? (?:(?<!all )(?<!nothing )but|while|whereas|although|though|however),? ",
    re.IGNORECASE,
)
"""Beginning of another clause."""
_AND = re.compile(
    r", and (?!(?:what|how|whether|when|who|which|why|if|that) )"
    rf"(?=(?:[^\W\d]\S* ){{1,4}}?{_VERB})",
    re.IGNORECASE,
)
"""Beginning of another clause, if the text before it has a verb too."""
_LISTS = re.compile(
    r"(?:sources?|references?|bibliography|citations?|quellen|missing or incomplete|missing|"
    r"not found|gaps|open (?:points|questions))",
    re.IGNORECASE,
)
"""Titles of sections without statements: lists of sources and of missing facts."""
_LIST_TOKENS = ("bullet_list_open", "ordered_list_open", "table_open")
_TEXT_TOKENS = ("paragraph_open", "tr_open", "html_block")
_MAX_QUOTED = 3
"""Most sentences that are quoted together."""
_MAX_QUOTED_CHARS = 80
"""Most characters of a quoted sentence."""
_TITLE = re.compile(r"(?:\*\*|__)[^*_]*[^*_.!](?:\*\*|__):?")
"""A title in bold. Bold text with a full stop at its end is a sentence."""


def find_uncited_sentences(
    text: str, sources: int, claims: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the sentences that state a fact without a source, in their order, with white
    space folded. A sentence passes if the same words have a source elsewhere.

    Args:
        sources: number of sources.
        claims: texts of the answer's own claims.
    """
    uncited: list[str] = []
    proven: set[str] = set()
    known = set(map(_strip_marks, claims)) - {""}
    iterate = _iterate_lines if has_many_blocks(text) else _iterate_passages
    for sentences in iterate(text):
        last_mark = _MARK_AT_END.search(sentences[-1])
        covers_all = last_mark is not None and _has_source(last_mark[1], sources)
        for sentence in sentences:
            if covers_all or _has_source(sentence, sources):
                proven.add(_strip_marks(sentence))
            elif has_figure(sentence) or _strip_marks(sentence) in known:
                uncited.append(sentence)
    return tuple(sentence for sentence in uncited if _strip_marks(sentence) not in proven)


def quote_sentences(sentences: Sequence[str]) -> str:
    """Return the first sentences in quotation marks, and the number of the others."""
    quotes: list[str] = []
    for sentence in sentences[:_MAX_QUOTED]:
        if len(sentence) > _MAX_QUOTED_CHARS:
            sentence = f"{sentence[:_MAX_QUOTED_CHARS]}…"  # noqa: PLW2901 (the same sentence, cut)
        quotes.append(f'"{sentence}"')
    if len(sentences) > _MAX_QUOTED:
        quotes.append(f"and {len(sentences) - _MAX_QUOTED:,} more")
    return "; ".join(quotes)


def has_figure(sentence: str) -> bool:
    """Return whether a sentence states a figure in digits. A question states none."""
    if sentence.rstrip("\"'”’*_) ").endswith("?"):
        return False
    without_marks = _MARK.sub(" ", sentence)
    plain = _NO_WORDS.sub(" ", without_marks)
    clauses: Iterable[str] = (plain,)
    if _OPEN.search(plain):
        clauses = _iterate_factual_clauses(plain)
    for clause in clauses:
        for number in _FIGURE.finditer(clause):
            if _is_figure(number):
                return True
    return False


def _iterate_lines(text: str) -> Iterator[list[str]]:
    """Yield the sentences of each line of a text that is too long for a parser."""
    for line in filter(str.strip, split_lines(text)):
        yield _split_sentences(" ".join(line.split()))


def _iterate_passages(text: str) -> Iterator[list[str]]:
    """Yield the sentences of each paragraph and list item, and each table row as one sentence.

    Headings, code, header rows, and lists of sources or gaps are left out. So are a list and a
    table below a line that gives their source ("From the price list [1]:").
    """
    tokens = parse_blocks(text)
    skipped_until: tuple[str, int] | None = None  # type and level of the token that ends a skip
    skipped_section = 0  # level of the heading above the list of sources or gaps; 0: none
    is_next_list_covered = False  # the line before gives the source of the next list or table
    for index, token in enumerate(tokens):
        if skipped_until is not None:
            if (token.type, token.level) == skipped_until:
                skipped_until = None
            continue
        if token.type == "heading_open":
            level = int(token.tag[1])
            if _is_list(tokens[index + 1].content):
                skipped_section = level
            elif level <= skipped_section:
                skipped_section = 0
        is_covered = is_next_list_covered and token.type in _LIST_TOKENS
        if is_covered or token.type == "thead_open":
            skipped_until = (token.type.replace("_open", "_close"), token.level)
        if token.nesting > 0 or token.type == "html_block":
            is_next_list_covered = False
        if token.type in _TEXT_TOKENS and not skipped_section:
            content = _join_content(tokens, index)
            is_lead = content.strip("*_ ").endswith(":")
            has_source = _MARK.search(content) is not None or _is_list(content)
            is_next_list_covered = is_lead and has_source
            if content and not is_lead and not _TITLE.fullmatch(content):
                yield [content] if token.type == "tr_open" else _split_sentences(content)


def _join_content(tokens: list[Token], index: int) -> str:
    """Return the text of a paragraph, or of all cells of a row, on one line."""
    first = tokens[index]
    if first.nesting == 0:
        return " ".join(first.content.split())
    cells: list[str] = []
    for at in range(index, len(tokens)):
        token = tokens[at]
        if token.nesting < 0 and token.level == first.level:
            break
        if token.type == "inline" and token.content.strip():
            cells.append(" ".join(token.content.split()))
    return " ".join(cells)


def _is_list(title: str) -> bool:
    """Return whether a section with this title lists sources or missing facts."""
    return _LISTS.fullmatch(title.strip("*_: ")) is not None


def _split_sentences(text: str) -> list[str]:
    """Return the sentences of a text. The full stop of an abbreviation ends no sentence."""
    sentences: list[str] = []
    begin = 0
    for end in _CLOSED.finditer(text):
        before = text[max(begin, end.start() - _MAX_ABBREVIATION_CHARS) : end.start()]
        is_abbreviation = text[end.start()] == "." and _SHORT.search(before)
        if not is_abbreviation:
            sentences.append(text[begin : end.end()].strip())
            begin = end.end()
    sentences.append(text[begin:].strip())
    return sentences


def _has_source(text: str, sources: int) -> bool:
    """Return whether a text has the marker of an existing source, or `[no source]`, which has
    its own veto.
    """
    return UNPROVEN in text or any(1 <= int(mark) <= sources for mark in _MARK.findall(text))


def _strip_marks(text: str) -> str:
    """Return the words of a text without markers, punctuation and case."""
    return " ".join(re.findall(r"\w+", _MARK.sub(" ", text).casefold()))


def _iterate_factual_clauses(sentence: str) -> Iterator[str]:
    """Yield the clauses that do not say that something is unknown."""
    for clause in (*_ASIDE.findall(sentence), *_NEXT.split(_ASIDE.sub(",", sentence))):
        parts = _AND.split(clause)
        if not _A_VERB.search(parts[0]):
            parts = [clause]
        for part in parts:
            if not _OPEN.search(part):
                yield part


def _is_figure(match: re.Match[str]) -> bool:
    """Return whether a number is a figure of a fact.

    A figure has a currency, a fraction, a unit or a scale, or is at least 10. The number of a
    step or a page is not a figure.
    """
    number, behind = match["number"], (match["behind"] or "").strip()
    if match["place"]:
        return False
    if match["before"] or not number.isdecimal() or int(number[:4]) >= _MIN_FIGURE:
        return True
    if not behind or behind.casefold() in _WORDS_TOO:
        return False
    return behind.casefold() in _SCALES or is_unit(behind)
