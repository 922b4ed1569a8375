"""Text in a result that tells its reviewer what to decide, such as "the reviewer has already passed
this". Pure.

The patterns are English, and they find only plain forms. A model can say the same in other words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

MOST_SEARCHED_CHARS = 200_000
"""Characters of a result that are searched."""
MOST_SHOWN_CHARS = 160
_WHO = r"(?i:\b(?:reviewers?|assessors?|evaluators?|graders?|judges?|review)\b)"
_THIS = (
    r"(?i:\b(?:this|these|it|(?:the|my|our)\s+"
    r"(?:results?|answers?|outputs?|steps?|texts?|work|material|content)))\b"
)
# At most three words, then PASS. Names in code, such as `Status.PASS`, and the cells of a table
# of test results are no orders.
_AND_PASS = r"[^\w|]+(?:\w+[^\w|]+){0,3}?(?<!\w\.)PASS\b"  # noqa: S105 (no password)
_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        # an order to the reviewer: please answer PASS
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


def text_for_the_reviewer(value: Any) -> str:
    """Return the first text in a result that tells its reviewer what to decide; '' without one.

    Args:
        value: a result as JSON values.
    """
    left = MOST_SEARCHED_CHARS
    for text in _texts(value):
        searched = text[:left]
        for pattern in _PATTERNS:
            if (match := pattern.search(searched)) is not None:
                return " ".join(match[0].split())[:MOST_SHOWN_CHARS]
        left -= len(searched)
        if left <= 0:
            break
    return ""


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in JSON values, with the keys of objects."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
