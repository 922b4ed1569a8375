"""JSON values that can be stored: their JSON text can be read again.

Python's decoder accepts more than JSON: NaN, infinities, and more levels than pydantic-core
reads. A stored value of that kind could never be read again.

The module also reads JSON text strictly: no repeated keys, and only finite numbers.

It counts the values of JSON text without parsing it. A value in the wrong place costs a validator
about 2,300 bytes and 10 microseconds for its error, also if its JSON has two bytes. So untrusted
text is counted before it is validated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Annotated, Any, NoReturn

from pydantic import AfterValidator, JsonValue

from handoff_queue.shared.text.unicode_text import has_lone_surrogate
from handoff_queue.shared.types.errors import UserError

MAX_LEVELS = 100
"""Most levels of lists and objects in one value. pydantic-core reads 200 levels, and a stored
value is a part of other messages.
"""
MAX_DIGITS = 4_300
"""Most digits of an integer. Python and pydantic-core refuse to read integers with more digits."""
_BEYOND = 10**MAX_DIGITS
_STRING = re.compile(rb'"(?:[^"\\\r\n]++|\\[^\r\n])*+(?P<end>"?)')
"""A text of JSON. Without an end it is not complete, or a line ends in it, which JSON forbids."""
_NOT_COUNTED = bytes(set(range(256)) - set(b'"{[,'))
"""Bytes that `has_more_values` does not count, apart from quotes."""


def check_storable(value: Any) -> None:
    """Check that a JSON value can be stored and read again.

    Raises:
        ValueError: the value has a number that JSON cannot hold, an integer of more than
            `MAX_DIGITS` digits, a lone surrogate, or more than `MAX_LEVELS` levels.
    """
    for level in _iterate_levels(value):
        for item in level:
            if isinstance(item, dict):
                for name in item:
                    _check_scalar(name)
            elif not isinstance(item, list | tuple):
                _check_scalar(item)


def check_depth(value: Any) -> None:
    """Raise ValueError if a value has more than `MAX_LEVELS` levels of lists and objects."""
    for _ in _iterate_levels(value):
        pass


def _iterate_levels(value: Any) -> Iterator[list[Any]]:
    """Yield the values of each level, the value itself first. Raise ValueError beyond
    `MAX_LEVELS`.
    """
    level = [value]
    for _ in range(MAX_LEVELS + 1):
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
    raise ValueError(f"has more than {MAX_LEVELS} levels of lists and objects")


def _check_scalar(value: Any) -> None:
    if isinstance(value, str):
        if has_lone_surrogate(value):
            raise ValueError("has half of a character (a lone surrogate), which UTF-8 cannot hold")
    elif isinstance(value, float):
        if not isfinite(value):
            raise ValueError(f"has the number {value}, which JSON cannot hold")
    elif isinstance(value, int) and not -_BEYOND < value < _BEYOND:
        raise ValueError(f"has an integer of more than {MAX_DIGITS:,} digits")


def _check_storable(value: JsonValue) -> JsonValue:
    check_storable(value)
    return value


StorableJson = Annotated[JsonValue, AfterValidator(_check_storable)]
"""A JSON value that `check_storable` accepts."""


def refuse_repeats(text: str) -> None:
    """Refuse JSON with a repeated name in one object. Text that is not JSON passes: the
    caller's parser refuses it.

    Raises:
        UserError: a name is repeated. The message has the first repeated name.
    """
    try:
        json.loads(text, object_pairs_hook=_check_unique_names)
    except (ValueError, RecursionError):
        return


def _check_unique_names(pairs: list[tuple[str, Any]]) -> None:
    known: set[str] = set()
    for name, _ in pairs:
        if name in known:
            raise UserError(f"{name!r:.80} is given twice; remove one")
        known.add(name)


_MAX_SHOWN = 20
"""Characters of a number in an error."""


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant[:_MAX_SHOWN]} is not a number in JSON")


def _parse_finite(digits: str) -> float:
    """Return the number. Raise ValueError if it is too large for a float."""
    value = float(digits)
    if isfinite(value):
        return value
    return _refuse_constant(digits)


def _parse_integer(digits: str) -> int:
    """Return the number. Raise ValueError if it has more digits than Python reads."""
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"it has an integer of more than {MAX_DIGITS:,} digits")
    return int(digits)


class _StrictDecoder(json.JSONDecoder):
    def raw_decode(self, s: str, idx: int = 0) -> tuple[Any, int]:
        try:
            value, end = super().raw_decode(s, idx)
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error
        if s.count("[", idx, end) + s.count("{", idx, end) > MAX_LEVELS:
            check_depth(value)
        return value, end


STRICT = _StrictDecoder(
    parse_constant=_refuse_constant, parse_float=_parse_finite, parse_int=_parse_integer
)
"""A strict decoder. Its methods raise ValueError if the text is not JSON, or if no process
could read the stored value again.
"""


@dataclass(frozen=True, slots=True)
class JsonCount:
    """Parts of JSON text outside of its strings."""

    groups: int
    """Beginnings of objects and arrays."""
    commas: int

    @property
    def values(self) -> int:
        """Return an upper bound of the values, of which each is in a group or after a comma."""
        return self.groups + self.commas + 1


class JsonCounter:
    """Counts a stream of JSON that arrives in pieces."""

    def __init__(self) -> None:
        self._open_text = b""
        """The beginning of a text that the last piece has not ended: a quote, and a backslash if
        the next character belongs to it.
        """

    def count(self, piece: bytes) -> JsonCount:
        """Return the count of the next piece."""
        data = self._open_text + piece
        self._open_text = b""
        outside: list[bytes] = []
        end = 0
        for text in _STRING.finditer(data):
            outside.append(data[end : text.start()])
            end = text.end()
            if not text["end"] and data[end : end + 2] in (b"", b"\\"):
                self._open_text = b'"' + data[end:]
        outside.append(data[end:])
        values = b"".join(outside)
        return JsonCount(values.count(b"{") + values.count(b"["), values.count(b","))


def has_more_values(text: str | bytes | bytearray, most: int) -> bool:
    """Return whether JSON text has more values than `most`."""
    if len(text) <= most:  # each value has a character
        return False
    data = text.encode(errors="replace") if isinstance(text, str) else bytes(text)
    if data.count(b"{") + data.count(b"[") + data.count(b",") < most:  # also in strings
        return False
    if b"\\" not in data and b"\n" not in data and b"\r" not in data:
        # Without escapes and lines, two quotes with nothing to count between them change no count.
        data = data.translate(None, delete=_NOT_COUNTED).replace(b'""', b"")
    outside = _STRING.sub(b"", data)  # a loop over each text takes seconds
    return outside.count(b"{") + outside.count(b"[") + outside.count(b",") + 1 > most
