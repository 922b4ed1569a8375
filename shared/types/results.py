"""Reading of stored results. A text that cannot be read becomes a failed result, and does not
stop its job.
"""

from __future__ import annotations

import json
from typing import Any

from handoff_queue.shared.types.errors import MalformedMessage
from handoff_queue.shared.types.handoff import HandoffResult, ResultStatus, StopReason

UNREADABLE = "its stored result cannot be read"
"""Error of the failed result that replaces an unreadable text."""
_FAILED = {
    "status": ResultStatus.FAILED,
    "stop_reason": StopReason.DEFECT,
    "error": UNREADABLE,
}
_NOWHERE = {
    "handoff_id": "unreadable.1",
    "job_id": "j-000000000000",
    "step_id": "unreadable",
    "attempt": 1,
}
"""Ids of such a failed result if the text does not contain the ids."""


def result_in(text: str) -> HandoffResult:
    """Return the result in a stored text, or a failed result if the text cannot be read."""
    try:
        return HandoffResult.from_json(text)
    except MalformedMessage:
        return unreadable_result(text)


def result_values(text: str) -> dict[str, Any]:
    """Return the fields of `result_in(text)` as JSON values."""
    return result_in(text).model_dump(mode="json")


def unreadable_result(text: str) -> HandoffResult:
    """Return the failed result that replaces a text which cannot be read, with the ids of the
    text if possible.
    """
    try:
        values = json.loads(text)
        names: dict[str, Any] = {}
        for name in _NOWHERE:
            names[name] = values[name]
        return HandoffResult.model_validate({**names, **_FAILED})
    except (ValueError, LookupError, TypeError, RecursionError):
        return HandoffResult.model_validate({**_NOWHERE, **_FAILED})
