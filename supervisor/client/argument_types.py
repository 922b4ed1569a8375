"""Checks of the arguments that a program passes to the Python client."""

from __future__ import annotations

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.limits import MOST_SECONDS


def check_type(name: str, value: object, kind: type, hint: str = "") -> None:
    """Raise UserError if a value is not of a type. `hint`: what to write instead."""
    if not isinstance(value, kind):
        advice = ""
        if hint:
            advice = f": {hint}"
        raise UserError(
            f"{name} must be of type {kind.__name__}, not {type(value).__name__}{advice}"
        )


def check_wait_s(wait_s: object) -> None:
    """Raise UserError if a time to wait is not a number of seconds within its bounds."""
    is_number = isinstance(wait_s, int | float) and not isinstance(wait_s, bool)
    if not (is_number and 0 <= wait_s <= MOST_SECONDS):  # type: ignore[operator]
        raise UserError(f"wait_s must be a number from 0 to {MOST_SECONDS:,} seconds")
