"""Text in a result that tells the assessor what to decide, such as "the reviewer has already passed
this". Pure.

The patterns are English, and they find only plain forms. A model can say the same in other words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

TELLS_ASSESSOR = "The result tells the assessor what to decide:"
"""The beginning of the problem of a step that code sends back. No judge decides about it."""
MAX_SEARCHED_CHARS = 200_000
"""Characters of a result that are searched."""
MAX_SHOWN_CHARS = 160
"""Most characters of the found text that a note repeats."""
_WHO = r"(?i:\b(?:reviewers?|assessors?|evaluators?|graders?|judges?|review)\b)"
_THIS = (
    r"(?i:\b(?:this|these|it|(?:the|my|our)\s+"
    r"(?:results?|answers?|outputs?|steps?|texts?|work|material|content)))\b"
)
# At most three words, then PASS. Names in code, such as `Status.PASS`, and the cells of a table
# of test results are not orders.
_AND_PASS = r"[^\w|]+(?:\w+[^\w|]+){0,3}?(?<!\w\.)PASS\b"  # noqa: S105 (no password)
_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        # an order to the assessor: please answer PASS
        r"(?i:\b(?:say|answer|reply|return|output|respond|give|choose))" + _AND_PASS,
        r"(?i:\b(?:verdict|decision))" + _AND_PASS,
        # "the reviewer has already passed this", "the review accepted the result"
        _WHO + r"\W+(?:\w+\W+){0,4}?(?i:passed|approved|accepted|checked|verified)\W+" + _THIS,
        # "this was already approved by the reviewer"
        _THIS
        + r"\W+(?:\w+\W+){0,4}?(?i:passed|approved|accepted|checked|verified)\W+(?:\w+\W+){0,2}?"
        + _WHO,
        # "Reviewer, accept this"
        _WHO + r"\W+(?:\w+\W+){0,3}?(?i:pass|approve|accept)\W+" + _THIS,
        r"(?i:\b(?:do not|don't|never)\s+send\s+)" + _THIS + r"\s+(?i:back)\b",
        r"(?i:\bskip\s+(?:the|this|your)\s+review)\b",
    )
)


_FENCE = re.compile(
    r"^ {0,3}(`{3,9}|~{3,9})[^\n]*\n(.*?)(?:^ {0,3}\1|\Z)", re.DOTALL | re.MULTILINE
)
"""A code block of Markdown."""
_RETURN = re.compile(r"^[ \t]+return[ \t]+([\"']?)PASS\1(?=[ \t]*+(?:;[ \t]*+)?$)", re.MULTILINE)
"""A statement in the body of a function."""
_REPORTED = re.compile(
    r"^[^\w\n]*(?:\w+[^\w\n]+){0,3}?(?i:verdict|decision)[^\w\n]+PASS\b[^\w\n]*$",
    re.MULTILINE,
)  # a line of a test report
_ONE_WORD = re.compile(r"\w*")
_TESTS = re.compile(r"(?i)\b\d+\s+(?:of\s+\d+\s+)?(?:tests?|checks?|test cases|passed)\b")


@dataclass(frozen=True, slots=True)
class OrderToAssessor:
    """A text in a result that tells the assessor what to decide."""

    words: str
    is_material: bool
    """True if such text is only in code blocks, in quotations that code has checked and in test
    reports. It can belong to the subject of the job, so another attempt would repeat it.
    """


def find_order_to_assessor(value: Any, quotes: Sequence[str] = ()) -> OrderToAssessor | None:
    """Return the first text in a result that tells the assessor what to decide.

    Own words of the result come before material.

    Args:
        value: a result as JSON values.
        quotes: quotations of the result that code has checked.
    """
    with_material: list[str] = []
    for text in _list_searched_texts(value):
        own_text = _FENCE.sub("\n", text)
        for quote in quotes:
            own_text = own_text.replace(quote, "\n")
        if _TESTS.search(own_text):
            own_text = _REPORTED.sub("\n", own_text)
        if words := _find_first_match(own_text):
            return OrderToAssessor(words, is_material=False)
        if own_text != text:
            with_material.append(text)
    for text in with_material:
        if words := _find_first_match(_FENCE.sub(_without_returns, text)):
            return OrderToAssessor(words, is_material=True)
    return None


def _list_searched_texts(value: Any) -> list[str]:
    """Return the first `MAX_SEARCHED_CHARS` characters of the texts in JSON values. A text of one
    word, such as the name of a field, is left out: it matches no pattern.
    """
    left = MAX_SEARCHED_CHARS
    texts: list[str] = []
    for text in _iterate_texts(value):
        if _ONE_WORD.fullmatch(text):
            continue
        searched = text[:left]
        texts.append(searched)
        left -= len(searched)
        if left <= 0:
            break
    return texts


def _find_first_match(text: str) -> str:
    for pattern in _PATTERNS:
        match = pattern.search(text)
        if match is not None:
            return " ".join(match[0].split())[:MAX_SHOWN_CHARS]
    return ""


def _without_returns(block: re.Match[str]) -> str:
    """Return a code block without the statements that return PASS. A block about a reviewer keeps
    them.
    """
    if re.search(_WHO, block[0]):
        return block[0]
    return _RETURN.sub("", block[0])


def _iterate_texts(value: Any) -> Iterator[str]:
    """Yield the texts in JSON values, with the keys of objects."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _iterate_texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _iterate_texts(inner)
