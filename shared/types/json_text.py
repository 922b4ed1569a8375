"""Strict reading of JSON text: no repeated keys, and only finite numbers."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any, NoReturn

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.json_values import MOST_DIGITS, MOST_LEVELS, check_depth


def refuse_repeats(text: str) -> None:
    """Refuse JSON with a repeated name in one object. Text that is not JSON passes: the
    caller's parser refuses it.

    Raises:
        UserError: a name is repeated. The message has the first repeated name.
    """
    try:
        json.loads(text, object_pairs_hook=_each_once)
    except (ValueError, RecursionError):
        return


def _each_once(pairs: list[tuple[str, Any]]) -> None:
    known: set[str] = set()
    for name, _ in pairs:
        if name in known:
            raise UserError(f"{name!r:.80} is given twice; remove one")
        known.add(name)


_MOST_SHOWN = 20
"""Characters of a number in an error."""


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant[:_MOST_SHOWN]} is not a number in JSON")


def _finite(digits: str) -> float:
    """Return the number. Raise ValueError if it is too large for a float."""
    value = float(digits)
    if isfinite(value):
        return value
    return _no_number(digits)


def _integer(digits: str) -> int:
    """Return the number. Raise ValueError if it has more digits than Python reads."""
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"it has an integer of more than {MOST_DIGITS:,} digits")
    return int(digits)


class _StrictDecoder(json.JSONDecoder):
    def raw_decode(self, s: str, idx: int = 0) -> tuple[Any, int]:
        try:
            value, end = super().raw_decode(s, idx)
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error
        if s.count("[", idx, end) + s.count("{", idx, end) > MOST_LEVELS:
            check_depth(value)
        return value, end


STRICT = _StrictDecoder(parse_constant=_no_number, parse_float=_finite, parse_int=_integer)
"""A strict decoder. Its methods raise ValueError if the text is not JSON, or if no process
could read the stored value again.
"""
