"""What handoffs of a life made up are, and come to."""

from __future__ import annotations

from typing import Any

from handoff_queue.shared.types.events import HandoffIssued
from handoff_queue.shared.types.handoff import HandoffResult, ResultStatus, ref
from handoff_queue.shared.types.ids import HandoffId, StepId, handoff_id
from handoff_queue.shared.types.names import SUB_SUPERVISOR
from handoff_queue.shared.types.usage import Usage
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.lifecycle.teams import child_of, team_before
from tests.doubles.handoffs import a_result, a_spec


def a_result_of(of: HandoffId, status: ResultStatus, **changes: Any) -> HandoffResult:
    step, _, attempt = of.partition(".")
    values: dict[str, Any] = {
        "handoff_id": of,
        "attempt": int(attempt),
        "status": status,
        "usage": Usage(input_tokens=10, output_tokens=1),
        "turns": 1,
        "confidence": 0.9,
        "needs": "a number" if status is ResultStatus.NEEDS_INPUT else None,
        "error": "it broke" if status is ResultStatus.FAILED else None,
    }
    return a_result(step, changes.pop("output", f"What {of} found.")).model_copy(
        update={**values, **changes}
    )


def a_stand_in(step: StepId, why: str) -> HandoffResult:
    return a_result_of(handoff_id(step, 1), ResultStatus.FAILED, error=why)


def an_issue_to_a_child(state: JobState, step: StepId) -> HandoffIssued:
    issue = an_issue(step, state.steps[step].attempt + 1, SUB_SUPERVISOR)
    return issue.model_copy(update={"child": child_of(state, step, team_before(state, step))})


def an_issue(
    step: StepId, attempt: int, who: str, group: str | None = None, index: int = 0
) -> HandoffIssued:
    of = handoff_id(step, attempt)
    return HandoffIssued(
        handoff_id=of,
        step_id=step,
        attempt=attempt,
        assigned_to=who,
        handoff=ref(f"the message of {of}"),
        specialist=a_spec().content_digest,
        group=group,
        index=index,
    )
