"""Comparison of claim values: whether two values of the same attribute can both be right. Pure.

A value is read as a period, as yes or no, or as a quantity. Any other value is text, and one text
may contain more than the other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from handoff_queue.shared.text.words import stem
from handoff_queue.supervisor.text.multi_valued_attributes import has_many, is_whole
from handoff_queue.supervisor.text.periods import Period, are_apart, minutes_of, periods_of
from handoff_queue.supervisor.text.quantities import (
    Quantity,
    are_comparable,
    disagree,
    quantity_of,
)

FEW = 3
"""Words of a short text, in which each word counts. Longer texts that share half of their words may
mean the same.
"""
_YES = frozenset(
    ("yes true supported available allowed enabled included always possible y").split()
)
_NO = frozenset(
    (
        "no false unsupported unavailable disallowed disabled excluded never impossible none n without"
    ).split()
)
_NEGATION = re.compile(
    r"\b(?:not|no|never|without|cannot|isn't|doesn't|don't|can't|won't|lacks)\b", re.IGNORECASE
)
_WORD = re.compile(r"[^\W_][\w+#]*(?:[.][\w+#]+)*", re.UNICODE)
_EMPTY = frozenset(
    (
        "a an the and or of in on at to for by with is are was were be it its as dr mr mrs ms prof does do not no never without cannot"
    ).split()
)
_IS_DATED = re.compile(r"\b(?:date|day|month|year|time|on)\b", re.IGNORECASE)
_IS_NAMED = re.compile(
    r"\b(?:version|release|id|identifier|number plate|phone|zip|postcode)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class ClaimValue:
    """A value, in all the ways in which it can be read."""

    text: str
    yes: bool | None
    quantity: Quantity | None
    periods: tuple[Period, ...]
    words: tuple[str, ...]
    is_negated: bool
    minutes: tuple[int, ...] = ()
    """Possible times of day, in minutes after midnight."""
    is_one_of_many: bool = False
    """True if the attribute may have other values, too."""


def read_value(value: str, unit: str | None, attribute: str) -> ClaimValue:
    """Parse the value of a claim.

    Args:
        attribute: its name. A version, for instance, looks like a number but is not one.
    """
    text = " ".join(value.replace("’", "'").split())
    known = text.casefold().strip(" .!")
    negated = _NEGATION.search(text) is not None
    named = _IS_NAMED.search(attribute) is not None and not _IS_DATED.search(attribute)
    words = tuple(
        stem(word) for word in map(str.casefold, _WORD.findall(text)) if word not in _EMPTY
    )
    return ClaimValue(
        text=known,
        yes=True if known in _YES else False if known in _NO or _NEGATION.match(text) else None,
        quantity=None if named else quantity_of(text, unit),
        periods=periods_of(text) if unit is None and not named else (),
        words=tuple(re.sub(r"^v(?=\d)", "", word) for word in words),
        is_negated=negated,
        minutes=minutes_of(text) if unit is None and not named else (),
        is_one_of_many=has_many(attribute) and not is_whole(text),
    )


def contradict(one: ClaimValue, other: ClaimValue) -> bool:  # noqa: PLR0911 (one way of reading them a line)
    """Return whether the values cannot both be right; False if code cannot decide."""
    if one.text == other.text and one.quantity is None:
        return False
    if one.yes is not None and other.yes is not None:
        return one.yes is not other.yes
    if one.yes is not None or other.yes is not None:
        return _denies(one, other) or _denies(other, one)
    if one.periods and other.periods:
        return are_apart(one.periods, other.periods)
    if one.minutes or other.minutes:
        return bool(one.minutes and other.minutes) and not set(one.minutes) & set(other.minutes)
    if one.quantity and other.quantity:
        return disagree(one.quantity, other.quantity)
    if one.quantity or other.quantity or one.periods or other.periods:
        return False
    return _differ(one, other)


def agree(one: ClaimValue, other: ClaimValue) -> bool:
    """Return whether the values are the same; False if code cannot decide."""
    if contradict(one, other):
        return False
    if one.minutes and other.minutes:
        return True
    if one.quantity and other.quantity:
        return are_comparable(one.quantity, other.quantity)
    if (
        one.text == other.text
        or (one.yes is not None and other.yes is not None)
        or (one.periods and other.periods)
    ):
        return True
    is_read: list[bool] = []
    for value in (one, other):
        is_read.append(value.yes is not None or bool(value.quantity or value.periods))
    return (
        not any(is_read)
        and bool(one.words and other.words)
        and not _are_others(*_without_initials(one.words, other.words))
    )


def _denies(plain: ClaimValue, other: ClaimValue) -> bool:
    """Return whether one value denies the other: yes, and "does not support it"; "not supported",
    and "supported since 2.0".
    """
    if plain.yes:
        return other.is_negated
    return not other.is_negated and bool(plain.words) and set(plain.words) <= set(other.words)


def _differ(one: ClaimValue, other: ClaimValue) -> bool:
    ours, theirs = _without_initials(one.words, other.words)
    if not ours or not theirs:
        return False
    if one.is_negated != other.is_negated:
        return ours <= theirs or theirs <= ours
    return not (one.is_one_of_many or other.is_one_of_many) and _are_others(ours, theirs)


def _are_others(ours: frozenset[str], theirs: frozenset[str]) -> bool:
    """Return whether the words differ, and are not only fewer of the same words."""
    figures: list[frozenset[str]] = []
    for words in (ours, theirs):
        figures.append(frozenset(word for word in words if any(map(str.isdigit, word))))
    if all(figures) and not (figures[0] <= figures[1] or figures[1] <= figures[0]):
        return True
    shared, shorter = len(ours & theirs), min(len(ours), len(theirs))
    if shorter <= FEW:
        return shared < shorter
    return 2 * shared < shorter


def _without_initials(
    ours: tuple[str, ...], theirs: tuple[str, ...]
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the words with initials replaced by the words that they may abbreviate: "J. Smith" is
    Jane Smith, "US" the United States.
    """
    for few, many in ((ours, theirs), (theirs, ours)):
        if (
            len(few) == 1
            and len(many) > 1
            and few[0]
            in ("".join(word[0] for word in many), "".join(word[0] for word in many) + "a")
        ):
            return frozenset(few), frozenset(few)
    spelt = {word[0]: word for word in (*ours, *theirs) if len(word) > 1}
    if any(len(word) > 1 for word in ours) and any(len(word) > 1 for word in theirs):
        ours, theirs = (
            tuple(_spelt(word, spelt, other) for word in words)
            for words, other in ((ours, theirs), (theirs, ours))
        )
    return frozenset(ours), frozenset(theirs)


def _spelt(word: str, spelt: dict[str, str], other: tuple[str, ...]) -> str:
    if len(word) == 1 and word.isalpha() and word not in other:
        return spelt.get(word, word)
    return word
