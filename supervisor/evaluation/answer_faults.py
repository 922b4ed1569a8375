"""The reasons why the answer of a job does not pass in an evaluation."""

from __future__ import annotations

import json

from handoff_queue.shared.types.gates import Gates
from handoff_queue.shared.types.handoff import StopReason
from handoff_queue.supervisor.client.job_result import JobResult
from handoff_queue.supervisor.lifecycle.gates import find_vetoes


def format_answer(result: JobResult) -> str:
    """Return the answer as text, with a JSON value in its JSON form; '' if there is no answer."""
    if result.answer is None:
        return ""
    if isinstance(result.answer, str):
        return result.answer
    return json.dumps(result.answer, ensure_ascii=False)


def find_faults(result: JobResult, gates: Gates | None) -> tuple[str, ...]:
    """Return the reasons why the answer does not pass, one sentence each.

    The whole text is checked, with the conflicts, gaps and open points that the supervisor
    adds.
    """
    text = format_answer(result)
    if not text:
        reason = result.status.value
        if result.notes:
            reason = result.notes[-1]
        return (f"There is no answer: {reason}",)
    if gates:
        is_form = not isinstance(result.answer, str)
        return find_vetoes(gates, text, len(result.citations), is_form=is_form)
    return ()


def is_cut(result: JobResult) -> bool:
    """Return whether the budget of the job or of the day stopped one of its handoffs. Such a
    job says nothing about the quality of its variant.
    """
    budgets = (StopReason.JOB_BUDGET, StopReason.DAY_BUDGET)
    return any(part["stop_reason"] in budgets for part in result.results)
