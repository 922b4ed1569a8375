"""One value out of one statement: a number, a choice, a yes or no, a date. None: the statement
does not say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from handoff_queue.shared.providers.offline.aspects import Aspect, aspect
from handoff_queue.shared.providers.offline.sentences import words_of

_SPEAKS = 2.0
"""Points of an aspect from which a statement speaks of it."""
_UNITS = {
    "usd": r"\$|dollars?|usd",
    "dollars": r"\$|dollars?|usd",
    "eur": r"€|euros?|eur",
    "gbp": r"£|gbp",
    "kg": r"kg|kilograms?|kilos?",
    "g": r"g|grams?",
    "gb": r"gb|gigabytes?",
    "mb": r"mb|megabytes?",
    "tb": r"tb|terabytes?",
    "ms": r"ms|milliseconds?",
    "seconds": r"s|sec|seconds?",
    "minutes": r"min|minutes?",
    "hours": r"h|hrs?|hours?",
    "days": r"days?",
    "years": r"years?",
    "percent": r"%|percent",
    "inches": r"in|\"|inch(?:es)?",
}
"""What stands beside a number whose property is named with that unit (`price_usd`, `weight_kg`)."""
_SAYS_NO_MORE = frozenset(
    "max min maximum minimum number num count total average avg value amount is has have can does support supports supported".split()
    + "the of in per a an".split()
)
"""Words of a property's name that a statement need not have."""
_NUMBER = re.compile(r"(?<![\w.-])(?<!\d:)\d+(?:,\d{3})*(?:\.\d+)?(?!\d|[.:]\d|-\d)")
_NEGATED = re.compile(
    r"\b(?:not|no|never|cannot|without|neither|nor|lacks?|\w+n['’]t)\b", re.IGNORECASE
)
_FORMATS = {
    "date": r"\d{4}-\d\d-\d\d(?!T?\d)",
    "date-time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)",
    "email": r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    "uri": r"https?://[^\s<>\"')\]]*[\w/]",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a property's name asks for."""

    aspects: tuple[Aspect, ...]
    """One for each of its words."""
    unit: str | None
    is_rate: bool
    """`price_per_month`: a price alone is something else."""

    def score(self, text: str, *, wholly: bool) -> float:
        """How much a statement speaks of it; 0.0: not (`wholly`: of each of the name's words)."""
        points = [each.score(text) for each in self.aspects]
        speaking = sum(each >= _SPEAKS for each in points)
        is_enough = (
            speaking == len(points) if wholly or self.is_rate else 2 * speaking >= len(points)
        )
        return sum(points) if points and is_enough else 0.0


@lru_cache(maxsize=512)
def wanted_by(name: str) -> Wanted:
    """`batteryLife_hours`: battery and life, in hours."""
    tokens = [token.lower() for token in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
    unit = next((_UNITS[token] for token in tokens[1:] if token in _UNITS), None)
    words = [
        token
        for index, token in enumerate(tokens)
        if token not in _SAYS_NO_MORE and not (index and token in _UNITS)
    ]
    return Wanted(tuple(aspect(word) for word in words or tokens), unit, "per" in tokens)


def number_in(text: str, wanted: Wanted) -> int | float | None:
    """The number beside the unit that the name asks for; without a unit, the one nearest to
    what the name asks for.
    """
    found = list(_NUMBER.finditer(text))
    if wanted.unit:
        beside = rf"(?:{wanted.unit})"
        found = [
            each
            for each in found
            if re.match(rf"[\s-]?{beside}(?!\w)", text[each.end() :], re.IGNORECASE)
            or re.search(rf"{beside}\s?$", text[: each.start()], re.IGNORECASE)
        ]
    places = list(_places(text, wanted.aspects))
    found.sort(key=lambda each: min((abs(each.start() - place) for place in places), default=0))
    if not found:
        return None
    value = float(found[0].group().replace(",", ""))
    return int(value) if value.is_integer() else value


def _places(text: str, aspects: Sequence[Aspect]) -> Iterator[int]:
    """Where a text speaks of something."""
    for each in aspects:
        yield from (found.start() for found in each.strong.finditer(text)) if each.strong else ()
        yield from (
            found.start()
            for found in re.finditer(r"[\w'’-]+", text)
            if each.stems and each.score(found.group())
        )


def yes_or_no_in(text: str) -> bool:
    """What a statement that speaks of something says of it."""
    return _NEGATED.search(text) is None


def choices_in(text: str, values: Sequence[Any]) -> list[Any]:
    """Those of the values that a statement names, in its order; none of a statement that
    denies something.
    """
    if _NEGATED.search(text):
        return []
    found: list[tuple[int, int, int, Any]] = []
    for value in values:
        if value is None or isinstance(value, bool) or not str(value).strip():
            continue
        words = (
            re.escape(str(value))
            .replace("_", r"[ _-]")
            .replace(r"\-", "[ -]")
            .replace(r"\ ", "[ _-]")
        )
        short = len(str(value)) <= 3
        place = re.search(rf"(?<![\w-]){words}(?![\w+#]|-\w)", text, 0 if short else re.IGNORECASE)
        found += [(place.start(), -len(str(value)), len(found), value)] if place else []
    return [value for *_, value in sorted(found, key=lambda each: each[:3])]


def formatted_in(text: str, kind: str) -> str | None:
    """A date, an address: what stands there in the form that a JSON Schema's `format` names."""
    found = re.search(_FORMATS[kind], text) if kind in _FORMATS else None
    return found.group() if found else None


def pieces_of(text: str) -> list[str]:
    """What a pattern may be looking for: words and the whole, without the full stop."""
    return [text.rstrip("."), *re.findall(r"[\w.+#/-]*\w[+#]*", text), *words_of(text)]
