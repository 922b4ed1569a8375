"""Quotes: the plan of a job with its estimated cost, before the job runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from handoff_queue.shared.types.cost_quote import Quote
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals
from handoff_queue.shared.types.usage import MICROUSD
from handoff_queue.supervisor.quoting.quote_history import convert_quote

if TYPE_CHECKING:
    from handoff_queue.supervisor.client.client import Client
    from handoff_queue.supervisor.client.request import Request
    from handoff_queue.supervisor.lifecycle.state import JobState

QUOTE_VALID_S = 3_600
"""Seconds that a quoted job waits for approval, unless the request sets them."""


def as_quoted(request: Request) -> Request:
    """Return a request whose job makes its plan and a quote, and then waits for approval."""
    approvals = request.approvals or Approvals()
    subjects = tuple(dict.fromkeys((ApprovalOf.PLAN, *approvals.what)))
    changes = {"what": subjects, "timeout_s": approvals.timeout_s or QUOTE_VALID_S}
    return replace(request, is_quoted=True, approvals=approvals.model_copy(update=changes))


def wait_for_plan(jobs: Client, job_id: JobId) -> JobState:
    """Follow the job until it asks a person or has ended, and return its state."""
    from handoff_queue.supervisor.lifecycle.reduce import begin, evolve

    events = jobs.events(job_id)
    state = begin(job_id, next(events))
    for recorded in events:
        state = evolve(state, recorded)
        if is_decided(state):
            break
    return state


def is_decided(state: JobState) -> bool:
    """Return whether the job asks a person or has ended: its quote does not change any more."""
    return bool(state.question or state.asked_at or state.ended)


def explain_missing_plan(state: JobState) -> str:
    """Return the reason why the job has no plan."""
    from handoff_queue.supervisor.lifecycle.job_budget import explain_spent_budget

    if state.spent_its_own and (state.plan is None or state.plan.degraded):
        spent = explain_spent_budget(state)
        return f"its limits are too low for a plan ({spent}): raise or remove a limit"
    return (state.ended and state.ended.reason) or "there is no plan"


def get_most_usd(quote: Quote) -> float | None:
    """Return the most that the job costs with a high probability, in dollars, or None."""
    if quote.microusd is None:
        return None
    return quote.microusd.most / MICROUSD


def exceeds(quote: Quote, max_microusd: int | None) -> bool:
    """Return whether the job may cost more than its limit, as far as both are known."""
    if quote.microusd is None or max_microusd is None:
        return False
    return quote.microusd.most > max_microusd


def build_quote_json(state: JobState, teams: str | None, *, is_refused: bool) -> dict[str, Any]:
    """Return the quote of a job in JSON form, as `handoff quote --json` prints it.

    Args:
        teams: the bill of the child jobs, from the plan of the job.
        is_refused: whether the job may cost more than its limit, and was cancelled.
    """
    return {
        "job_id": state.job_id,
        "steps": len(state.steps),
        "child_jobs": teams,
        "quote": convert_quote(state.quote or Quote()),
        "is_refused": is_refused,
    }
