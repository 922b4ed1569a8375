"""Sentences of an answer that state a fact without a source. Pure.

A fact is a figure in digits, or a text of one of the answer's claims. An ambiguous sentence passes,
because users switch off a gate that vetoes good answers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from handoff_queue.supervisor.lifecycle.result_texts import UNPROVEN
from handoff_queue.supervisor.text.markdown import blocks_of
from handoff_queue.supervisor.text.quantities import is_unit

if TYPE_CHECKING:
    from markdown_it.token import Token

_MARK = re.compile(r"\[(\d{1,4})\](?!\()")
"""Marker of a source, but not the text of a Markdown link."""
_AT_THE_END = re.compile(r"(\[(?:\d{1,4}|no source)\])[.!?)*_\"” ]*$")
_NO_WORDS = re.compile(r"`[^`]*`|<[^<>]*>|\[\d{1,4}\]\(|https?://[^\s)]+")
"""Code, tags, addresses and numbered links: their digits are no figures."""
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
_LONGEST_SHORT = 8
_FIGURE = re.compile(
    r"(?P<place>\b(?:step|option|part|phase|point|item|question|section|chapter|page|line|table|figure|appendix|schritt|teil|seite) )?"
    r"(?P<before>[$€£¥] ?)?(?<![\w.])(?<!\w[-/+])(?P<number>\d(?:[\d.,]*\d)?)(?P<behind> ?(?:%|‰|°[CF]|[$€£¥])|[^\W\d_]+| [^\W\d_]+)?",
    re.IGNORECASE,
)
_LEAST = 10
"""A bare whole number below it may be the answer's own count ("the 3 databases")."""
_SCALES = frozenset(
    "k m bn thousand million billion trillion mio mrd tausend millionen milliarden".split()
)
_WORDS_TOO = frozenset("in a at as to h t b mi mo".split())
"""Units that, behind a bare number, are words."""
_OPEN = re.compile(
    r"\b(?:not found|no information|unknown|missing|unclear|cannot be|could not be"
    r"|(?:(?:does|do|did|is|are|was|were) not|(?:doesn|don|didn|isn|aren|wasn|weren)['’]t) (?:\w+ )?"
    r"(?:say|state|mention|give|given|name|cover|contain|include|found|known|available)"
    r"|no (?:[\w-]+ ){1,8}(?:is|are|was|were|could be) (?:said|stated|mentioned|given|named|found|known|available))\b",
    re.IGNORECASE,
)
"""Words of a clause that says that something is unknown. Such a clause needs no source."""
_ASIDE = re.compile(
    r", (?:which|who|whose|where|while|whereas|although|though) ((?:[^,;]|,(?! ))*),(?= )",
    re.IGNORECASE,
)
"""A clause within another one, between commas."""
_VERB = r"(?:is|are|was|were|do|does|did|has|have|had|costs?|takes?|holds?|needs?|began|grew|fell|reached)\b"
_A_VERB = re.compile(rf"\b{_VERB}", re.IGNORECASE)
_NEXT = re.compile(
    r"; |, (?:which|who|whose|where|so|yet) |,? (?:(?<!all )(?<!nothing )but|while|whereas|although|though|however),? ",
    re.IGNORECASE,
)
"""Beginning of another clause."""
_AND = re.compile(
    rf", and (?!(?:what|how|whether|when|who|which|why|if|that) )(?=(?:[^\W\d]\S* ){{1,4}}?{_VERB})",
    re.IGNORECASE,
)
"""Possible beginning of another clause, if a verb comes before it, too."""
_LISTS = re.compile(
    r"(?:sources?|references?|bibliography|citations?|quellen|missing or incomplete|missing|not found|gaps|open (?:points|questions))",
    re.IGNORECASE,
)
"""Titles of sections without statements: lists of sources and of missing facts."""
_LISTED = ("bullet_list_open", "ordered_list_open", "table_open")
_SAYING = ("paragraph_open", "tr_open", "html_block")
_TITLE = re.compile(r"(?:\*\*|__)[^*_]*[^*_.!](?:\*\*|__):?")
"""A title in bold. Bold text with a full stop at its end is a sentence."""


def find_uncited_sentences(
    text: str, sources: int, claims: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the sentences in their order, with white space folded.

    Args:
        sources: number of sources.
        claims: texts of the answer's own claims.
    """
    uncited, proven = list[str](), set[str]()
    known = {_bare(claim) for claim in claims} - {""}
    for sentences in _passages(text):
        covers_all = any(_points(mark, sources) for mark in _AT_THE_END.findall(sentences[-1]))
        for sentence in sentences:
            if covers_all or _points(sentence, sources):
                proven.add(_bare(sentence))
            elif _has_a_figure(sentence) or _bare(sentence) in known:
                uncited.append(sentence)
    ones: list[str] = []
    for clause in uncited:
        if _bare(clause) not in proven:
            ones.append(clause)
    return tuple(ones)


def _passages(text: str) -> Iterator[list[str]]:
    """Yield the sentences of each paragraph and list item, and each row of a table as one.

    Headings, code, header rows, and lists of sources or gaps are left out. So are the lines below a
    line that gives their source ("From the price list [1]:").
    """
    tokens, depth, covers, until = blocks_of(text), 0, False, ("", 0)
    for index, token in enumerate(tokens):
        if until[0]:  # inside a skipped section
            until = ("", 0) if (token.type, token.level) == until else until
            continue
        if token.type == "heading_open":
            level = int(token.tag[1])
            if _is_list(tokens[index + 1].content):
                depth = level
            elif level <= depth:
                depth = 0
        if token.type == "thead_open" or (token.type in _LISTED and covers):
            until = (token.type.replace("_open", "_close"), token.level)
        covers = covers and token.nesting <= 0 and token.type != "html_block"
        if token.type in _SAYING and not depth:
            content = _said(tokens, index)
            is_lead = content.strip("*_ ").endswith(":")
            covers = is_lead and (_MARK.search(content) is not None or _is_list(content))
            if content and not is_lead and not _TITLE.fullmatch(content):
                yield [content] if token.type == "tr_open" else _sentences(content)


def _said(tokens: list[Token], index: int) -> str:
    """Return the text of a paragraph, or of all cells of a row."""
    if tokens[index].nesting == 0:
        return " ".join(tokens[index].content.split())
    end = next(
        at
        for at in range(index, len(tokens))
        if tokens[at].nesting < 0 and tokens[at].level == tokens[index].level
    )
    return " ".join(
        " ".join(token.content.split()) for token in tokens[index:end] if token.type == "inline"
    )


def _is_list(title: str) -> bool:
    return _LISTS.fullmatch(title.strip("*_: ")) is not None


def _sentences(text: str) -> list[str]:
    sentences, begin = list[str](), 0
    for end in _CLOSED.finditer(text):
        if text[end.start()] != "." or not _SHORT.search(
            text[max(begin, end.start() - _LONGEST_SHORT) : end.start()]
        ):
            sentences.append(text[begin : end.end()].strip())
            begin = end.end()
    return [*sentences, text[begin:].strip()]


def _points(text: str, sources: int) -> bool:
    return UNPROVEN in text or any(1 <= int(mark) <= sources for mark in _MARK.findall(text))


def _bare(text: str) -> str:
    return " ".join(re.findall(r"\w+", _MARK.sub(" ", text).casefold()))


def _has_a_figure(sentence: str) -> bool:
    if sentence.rstrip("\"'”’*_) ").endswith("?"):
        return False
    plain = _NO_WORDS.sub(" ", _MARK.sub(" ", sentence))
    stated = _stated(plain) if _OPEN.search(plain) else (plain,)
    return any(_is_figure(match) for clause in stated for match in _FIGURE.finditer(clause))


def _stated(sentence: str) -> Iterator[str]:
    """Yield the clauses that do not say that something is unknown."""
    for clause in (*_ASIDE.findall(sentence), *_NEXT.split(_ASIDE.sub(",", sentence))):
        first, *others = _AND.split(clause)
        if _A_VERB.search(first):
            parts = [first, *others]
        else:
            parts = [clause]
        for part in parts:
            if not _OPEN.search(part):
                yield part


def _is_figure(match: re.Match[str]) -> bool:
    number, behind = match["number"], (match["behind"] or "").strip()
    if match["place"]:
        return False
    if match["before"] or not number.isdecimal() or int(number[:4]) >= _LEAST:
        return True
    is_word = behind.casefold() in _WORDS_TOO
    return behind.casefold() in _SCALES or bool(behind and not is_word and is_unit(behind))
