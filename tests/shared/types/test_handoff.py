"""A result has the fields that its status requires."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from handoff_queue.shared.types.handoff import ResultStatus
from tests.doubles.handoffs import a_result


@pytest.mark.parametrize(
    "contradiction",
    [
        {"status": ResultStatus.OK, "needs": "the prices"},
        {"status": ResultStatus.OK, "error": "it broke"},
        {"status": ResultStatus.OK, "output": "Task completed."},
        {"status": ResultStatus.OK, "output": None},
        {"status": ResultStatus.PARTIAL, "output": None},
        {"status": ResultStatus.NEEDS_INPUT, "needs": None},
        {"status": ResultStatus.FAILED, "error": None},
    ],
)
def test_a_result_that_contradicts_its_status_cannot_be_made(contradiction: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"status|the work itself"):
        a_result("look", **contradiction)
