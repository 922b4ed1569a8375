"""Checks of the arguments that a program passes to the Python client."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from pydantic import BaseModel

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.limits import MAX_SECONDS
from handoff_queue.shared.types.message import public_name


def check_type(name: str, value: object, kind: type, hint: str = "") -> None:
    """Raise UserError if a value is not of a type. `hint`: what to write instead."""
    if isinstance(value, kind):
        return
    public, wrong = public_name(kind), type(value).__name__
    if issubclass(kind, Enum):
        wrong = f"{value!r:.60}"
        hint = f"use one of {', '.join(f'{public}.{member.name}' for member in kind)}"
    elif issubclass(kind, BaseModel) and isinstance(value, Mapping):
        hint = f"write {public}(...) with these fields"
    advice = ""
    if hint:
        advice = f": {hint}"
    raise UserError(f"{name} must be of type {public}, not {wrong}{advice}")


def check_wait_s(wait_s: object) -> None:
    """Raise UserError if a time to wait is not a number of seconds within its bounds."""
    is_number = isinstance(wait_s, int | float) and not isinstance(wait_s, bool)
    if not (is_number and 0 <= wait_s <= MAX_SECONDS):  # type: ignore[operator]
        raise UserError(
            f"wait_s must be a number from 0 to {MAX_SECONDS:,} seconds, not {wait_s!r:.60}"
        )
