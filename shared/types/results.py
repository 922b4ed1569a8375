"""Reading of stored results. A text that cannot be read becomes a failed result, so that it
cannot stop its job.
"""

from __future__ import annotations

import json
from typing import Any

from handoff_queue.shared.types.errors import MalformedMessage
from handoff_queue.shared.types.handoff import HandoffResult, ResultStatus, StopReason

UNREADABLE = "its stored result cannot be read"
"""The error of the result that stands in for a stored text."""
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
"""The names in a stand-in whose stored text does not name its handoff."""


def result_in(text: str) -> HandoffResult:
    """Return the result that a stored text holds. A failed result stands in for a text that
    cannot be read.
    """
    try:
        return HandoffResult.from_json(text)
    except MalformedMessage:
        return unreadable_result(text)


def result_values(text: str) -> dict[str, Any]:
    """Return the fields of `result_in(text)` as JSON values."""
    return result_in(text).model_dump(mode="json")


def unreadable_result(text: str) -> HandoffResult:
    """Return the failed result that stands in for a stored text which cannot be read."""
    try:
        values = json.loads(text)
        names: dict[str, Any] = {}
        for name in _NOWHERE:
            names[name] = values[name]
        return HandoffResult.model_validate({**names, **_FAILED})
    except (ValueError, LookupError, TypeError, RecursionError):
        return HandoffResult.model_validate({**_NOWHERE, **_FAILED})
