"""The refusal of a check, as a value that a test can compare."""

from __future__ import annotations

from collections.abc import Callable

from handoff_queue.shared.agent.json_schema_validation import BrokenSchema
from handoff_queue.shared.types.errors import UserError


def refusal_of(check: Callable[..., object], *arguments: object) -> str | None:
    """Return the message with which the check refuses these arguments, or None if it accepts."""
    try:
        check(*arguments)
    except (UserError, BrokenSchema, ValueError) as error:
        return str(error)
    return None
