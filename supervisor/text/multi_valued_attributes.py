"""Attributes that have several values at once: offices, customers, supported formats. A claim
may name only some of the values. Pure.
"""

from __future__ import annotations

import re

_VERBS = re.compile(
    r"\b(?:support(?:s|ed)?|offer(?:s|ed)?|include[sd]?|provide[sd]?|contain(?:s|ed)?|features?|has|have|uses?|used|integrates?|available|"
    r"compatible|known)\b",
    re.IGNORECASE,
)
_ONE_OF_MANY = frozenset("version release edition feature example".split())
"""Attributes with several values, in sequence or in parallel, unless the attribute has a word
of `_ALONE`.
"""
_ALONE = re.compile(
    r"\b(?:only|sole|single|exclusive|main|primary|principal|default|official|current|latest|newest|first|last|minimum|maximum|min|max|"
    r"required|all|complete|total|number|count)\b",
    re.IGNORECASE,
)
"""Words that say that an attribute has one value."""
_WHOLE = re.compile(r"\b(?:only|solely|exclusively|all|nothing but|just)\b", re.IGNORECASE)
_NO_PLURAL = frozenset(
    "headquarters series status basis analysis address access class process business species news sales earnings".split()
)
_WORD = re.compile(r"[^\W\d_]+")


def has_many(attribute: str) -> bool:
    """Return whether the attribute may have several values: "offices" may, "number of offices"
    has one value.
    """
    if _ALONE.search(attribute):
        return False
    first = re.split(r"\s+(?:of|in|on|at|for|by)\b", attribute.casefold(), maxsplit=1)[0]
    words = _WORD.findall(first)
    if not words:
        return False
    return (
        words[-1] in _ONE_OF_MANY or _is_plural(words[-1]) or _VERBS.search(attribute) is not None
    )


def is_whole(value: str) -> bool:
    """Return whether the value says that there is no other value."""
    return _WHOLE.search(value) is not None


def _is_plural(word: str) -> bool:
    return (
        len(word) > 3
        and word.endswith("s")
        and not word.endswith(("ss", "us", "is"))
        and word not in _NO_PLURAL
    )
