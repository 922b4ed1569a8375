"""JSON values that can be stored: their JSON text can be read again.

Python's decoder accepts more than JSON: NaN, infinities, and more levels than pydantic-core
reads. A stored value of that kind could never be read again.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Annotated, Any

from pydantic import AfterValidator, JsonValue

from handoff_queue.shared.types.characters import has_half_a_character

MOST_LEVELS = 100
"""Most levels of lists and objects in one value. pydantic-core reads 200 levels, and a stored
value is a part of other messages.
"""
MOST_DIGITS = 4_300
"""Most digits of an integer. Python and pydantic-core refuse to read integers with more digits."""
_BEYOND = 10**MOST_DIGITS


def check_storable(value: Any) -> None:
    """Check that a JSON value can be stored and read again.

    Raises:
        ValueError: the value has a number that JSON cannot hold, an integer of more than
            `MOST_DIGITS` digits, a lone surrogate, or more than `MOST_LEVELS` levels.
    """
    for level in _levels(value):
        for item in level:
            if isinstance(item, dict):
                for name in item:
                    _check_scalar(name)
            elif not isinstance(item, list | tuple):
                _check_scalar(item)


def check_depth(value: Any) -> None:
    """Raise ValueError if a value has more than `MOST_LEVELS` levels of lists and objects."""
    for _ in _levels(value):
        pass


def _levels(value: Any) -> Iterator[list[Any]]:
    """Yield the values of each level, the value itself first. Raise ValueError beyond
    `MOST_LEVELS`.
    """
    level = [value]
    for _ in range(MOST_LEVELS + 1):
        yield level
        deeper: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                deeper.extend(item.values())
            elif isinstance(item, list | tuple):
                deeper.extend(item)
        if not deeper:
            return
        level = deeper
    raise ValueError(f"has more than {MOST_LEVELS} levels of lists and objects")


def _check_scalar(value: Any) -> None:
    if isinstance(value, str):
        if has_half_a_character(value):
            raise ValueError("has half of a character (a lone surrogate), which UTF-8 cannot hold")
    elif isinstance(value, float):
        if not isfinite(value):
            raise ValueError(f"has the number {value}, which JSON cannot hold")
    elif isinstance(value, int) and not -_BEYOND < value < _BEYOND:
        raise ValueError(f"has an integer of more than {MOST_DIGITS:,} digits")


def _storable(value: JsonValue) -> JsonValue:
    check_storable(value)
    return value


StorableJson = Annotated[JsonValue, AfterValidator(_storable)]
"""A JSON value that `check_storable` accepts."""
