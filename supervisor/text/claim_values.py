"""Comparison of claim values: whether two values of the same attribute can both be right.
Pure.

A value is read as yes or no, a period, a time of day, or a quantity. Any other value is text,
and one text may contain more than the other. Each part of the grammar avoids false alarms or
finds more contradictions (docs/decisions/0023-measured-mechanisms.md).

Some attributes have several values at once: offices, customers, supported formats. A claim may
name only some of the values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from handoff_queue.shared.text.word_forms import find_stem, has_digit
from handoff_queue.supervisor.text.periods import Period, are_apart, parse_minutes, parse_periods
from handoff_queue.supervisor.text.quantities import (
    Quantity,
    are_comparable,
    parse_quantity,
    quantities_contradict,
)

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
    "headquarters series status basis analysis address access class process business species news"
    " sales earnings".split()
)
_LETTERS = re.compile(r"[^\W\d_]+")


def has_many(attribute: str) -> bool:
    """Return whether the attribute may have several values: "offices" may, "number of offices"
    has one value.
    """
    if _ALONE.search(attribute):
        return False
    first = re.split(r"\s(?:of|in|on|at|for|by)\b", attribute.casefold(), maxsplit=1)[0]
    words = _LETTERS.findall(first)
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


FEW = 3
"""Most words of a short text, in which each word counts. A longer text that shares half of its
words with another text may mean the same.
"""
_YES = frozenset(
    ("yes true supported available allowed enabled included always possible y").split()
)
_NO = frozenset(
    (
        "no false unsupported unavailable disallowed disabled excluded never impossible none n"
        " without"
    ).split()
)
_NEGATION = re.compile(
    r"\b(?:not|no|never|without|cannot|isn't|doesn't|don't|can't|won't|lacks)\b", re.IGNORECASE
)
_WORD = re.compile(r"[^\W_][\w+#]*(?:[.][\w+#]+)*", re.UNICODE)
_EMPTY = frozenset(
    (
        "a an the and or of in on at to for by with is are was were be it its as dr mr mrs ms prof"
        " does do not no never without cannot"
    ).split()
)
_IS_DATED = re.compile(r"\b(?:date|day|month|year|time|on)\b", re.IGNORECASE)
_IS_IDENTIFIER = re.compile(
    r"\b(?:version|release|id|identifier|number plate|phone|zip|postcode)\b", re.IGNORECASE
)
"""Attributes whose values are names in digits, and no quantities."""
_VERSION_MARK = re.compile(r"^v(?=\d)")
"""The letter in `v2.1`."""


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
        unit: the unit outside the value; None: there is none.
        attribute: the attribute of the claim. A version, for instance, is not a quantity.
    """
    text = " ".join(value.replace("’", "'").split())
    plain = text.casefold().strip(" .!")
    words: list[str] = []
    for word in _WORD.findall(text):
        if word.casefold() not in _EMPTY:
            words.append(_VERSION_MARK.sub("", find_stem(word.casefold())))
    yes = None
    if plain in _YES:
        yes = True
    elif plain in _NO or _NEGATION.match(text):
        yes = False
    quantity = None
    periods: tuple[Period, ...] = ()
    minutes: tuple[int, ...] = ()
    is_identifier = _IS_IDENTIFIER.search(attribute) and not _IS_DATED.search(attribute)
    if not is_identifier:
        quantity = parse_quantity(text, unit)
        if unit is None:
            periods = parse_periods(text)
            minutes = parse_minutes(text)
    return ClaimValue(
        text=plain,
        yes=yes,
        quantity=quantity,
        periods=periods,
        words=tuple(words),
        is_negated=_NEGATION.search(text) is not None,
        minutes=minutes,
        is_one_of_many=has_many(attribute) and not is_whole(text),
    )


def values_contradict(first: ClaimValue, second: ClaimValue) -> bool:  # noqa: PLR0911 (one way of reading them a line)
    """Return whether the values cannot both be right; False if code cannot decide."""
    if first.text == second.text and first.quantity is None:
        return False
    if first.yes is not None and second.yes is not None:
        return first.yes is not second.yes
    if first.yes is not None or second.yes is not None:
        return _denies(first, second) or _denies(second, first)
    if first.periods and second.periods:
        return are_apart(first.periods, second.periods)
    if first.minutes and second.minutes:
        return not set(first.minutes) & set(second.minutes)
    if first.minutes or second.minutes:
        return False
    if first.quantity and second.quantity:
        return quantities_contradict(first.quantity, second.quantity)
    if first.quantity or second.quantity or first.periods or second.periods:
        return False
    return _values_differ(first, second)


def values_agree(first: ClaimValue, second: ClaimValue) -> bool:
    """Return whether the values can be compared and do not contradict each other."""
    if values_contradict(first, second):
        return False
    if first.minutes and second.minutes:
        return True
    if first.quantity and second.quantity:
        return are_comparable(first.quantity, second.quantity)
    are_both_yes_or_no = first.yes is not None and second.yes is not None
    if first.text == second.text or are_both_yes_or_no or (first.periods and second.periods):
        return True
    if _has_meaning(first) or _has_meaning(second):
        return False
    return _have_same_words(first.words, second.words)


def _has_meaning(value: ClaimValue) -> bool:
    """Return whether code can read a value as a yes, a no, a quantity or a period."""
    return value.yes is not None or bool(value.quantity or value.periods)


def _have_same_words(first: tuple[str, ...], second: tuple[str, ...]) -> bool:
    """Return whether two texts with these words say the same. A text without words does not."""
    if not first or not second:
        return False
    first_words, second_words = _spell_initials(first, second)
    return not _are_others(first_words, second_words)


def _denies(plain: ClaimValue, other: ClaimValue) -> bool:
    """Return whether one value denies the other: yes, and "does not support it"; "not
    supported", and "supported since 2.0".
    """
    if plain.yes:
        return other.is_negated
    return not other.is_negated and bool(plain.words) and set(plain.words) <= set(other.words)


def _values_differ(first: ClaimValue, second: ClaimValue) -> bool:
    """Return whether two values without quantities or times say different things, by their
    words.
    """
    first_words, second_words = _spell_initials(first.words, second.words)
    if not first_words or not second_words:
        return False
    if first.is_negated != second.is_negated:
        return first_words <= second_words or second_words <= first_words
    return not (first.is_one_of_many or second.is_one_of_many) and _are_others(
        first_words, second_words
    )


def _are_others(first_words: frozenset[str], second_words: frozenset[str]) -> bool:
    """Return whether two texts with these words say different things.

    They do if both have figures and neither has all figures of the other. They also do if a short
    text has a word that the other text lacks. So do they if less than half of the shorter text's
    words are shared.
    """
    our_figures = frozenset(filter(has_digit, first_words))
    their_figures = frozenset(filter(has_digit, second_words))
    if our_figures - their_figures and their_figures - our_figures:
        return True
    shared = len(first_words & second_words)
    shorter = min(len(first_words), len(second_words))
    if shorter <= FEW:
        return shared < shorter
    return 2 * shared < shorter


def _spell_initials(
    first_words: tuple[str, ...], second_words: tuple[str, ...]
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the words with initials replaced by the words that they may abbreviate: "J.
    Smith" may be "Jane Smith". For an abbreviation and its words ("US", "United States"),
    return the abbreviation twice.
    """
    for few, many in ((first_words, second_words), (second_words, first_words)):
        if len(few) == 1 and _abbreviates(few[0], many):
            return frozenset(few), frozenset(few)
    our_long_words = [word for word in first_words if len(word) > 1]
    their_long_words = [word for word in second_words if len(word) > 1]
    if not our_long_words or not their_long_words:
        return frozenset(first_words), frozenset(second_words)
    by_initial = {word[0]: word for word in (*our_long_words, *their_long_words)}
    our_spelt = frozenset(_spell(word, by_initial, second_words) for word in first_words)
    their_spelt = frozenset(_spell(word, by_initial, first_words) for word in second_words)
    return our_spelt, their_spelt


def _abbreviates(word: str, words: tuple[str, ...]) -> bool:
    """Return whether a word has the initials of several words, or these and an "a" ("USA")."""
    initials = "".join(other[0] for other in words)
    return len(words) > 1 and word in (initials, f"{initials}a")


def _spell(word: str, by_initial: dict[str, str], other: tuple[str, ...]) -> str:
    """Return the word that an initial may stand for, or else the word itself. An initial that
    the other text also has stays.
    """
    if len(word) == 1 and word.isalpha() and word not in other:
        return by_initial.get(word, word)
    return word
