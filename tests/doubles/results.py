"""Results of simulated handoffs."""

from __future__ import annotations

from typing import Any

from handoff_queue.shared.types.handoff import HandoffResult, ResultStatus
from handoff_queue.shared.types.ids import HandoffId
from handoff_queue.shared.types.usage import Usage
from tests.doubles.handoffs import a_result


def a_result_of(handoff_id: HandoffId, status: ResultStatus, **changes: Any) -> HandoffResult:
    step, _, attempt = handoff_id.partition(".")
    values: dict[str, Any] = {
        "handoff_id": handoff_id,
        "attempt": int(attempt),
        "status": status,
        "usage": Usage(input_tokens=10, output_tokens=1),
        "turns": 1,
        "confidence": 0.9,
        "needs": "a number" if status is ResultStatus.NEEDS_INPUT else None,
        "error": "it broke" if status is ResultStatus.FAILED else None,
    }
    return a_result(step, changes.pop("output", f"What {handoff_id} found.")).model_copy(
        update={**values, **changes}
    )
