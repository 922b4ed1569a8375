"""JSON as it is defined: Python's own reader takes NaN and infinities, which nothing else could be sent."""

from __future__ import annotations

import json
from math import isfinite
from typing import NoReturn


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(digits: str) -> float:
    """Raises: ValueError: it is beyond what a float holds."""
    value = float(digits)
    return value if isfinite(value) else _no_number(digits)


STRICT = json.JSONDecoder(parse_constant=_no_number, parse_float=_finite)
"""Raises: ValueError: a text is not JSON. RecursionError: it goes too deep."""
