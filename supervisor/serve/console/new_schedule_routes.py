"""The form for a new schedule: its times, its rules and the request of its jobs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.datastructures import FormData

from handoff_queue.shared.types.errors import Conflict, HandoffError, StoreUnavailable
from handoff_queue.shared.types.limits import MAX_USD
from handoff_queue.shared.types.schedule import Missed, Overlap
from handoff_queue.supervisor.serve.authentication import Access
from handoff_queue.supervisor.serve.console.new_job_routes import AmountField
from handoff_queue.supervisor.serve.console.pages import go_to, render
from handoff_queue.supervisor.serve.console.session import Submits, Visit
from handoff_queue.supervisor.serve.problem_documents import Problem, convert_error
from handoff_queue.supervisor.serve.request_body import ScheduleBody, parse_body
from handoff_queue.supervisor.serve.schedule_routes import add_schedule

LABELS = {
    "name": "Name",
    "cron": "Cron expression, such as 0 9 * * mon-fri or @daily",
    "timezone": "Time zone",
    "overlap": "While an earlier job runs",
    "missed": "Missed slots to make up for",
    "max_usd_per_month": "Most US dollars of a month",
    "text": "Request",
    "tenant": "Tenant",
}
"""The labels of the form. The errors of the form name them."""
OF_SCHEDULE = ("name", "cron", "timezone", "overlap", "missed")
"""Fields of `ScheduleBody` that the form has as a text. '' leaves the field out."""
OF_JOB = ("text", "tenant")
"""Fields of the schedule's `JobBody` that the form has as a text."""
MAX_OF_A_MONTH = AmountField("max_microusd_per_month", 1_000_000, MAX_USD, "20")

router = APIRouter(prefix="/schedules/new", include_in_schema=False)


@router.get("")
async def new(request: Request, visit: Submits) -> Response:
    """Show the form."""
    return _render_page(request, visit, dict.fromkeys(LABELS, "") | {"timezone": "UTC"})


@router.post("")
async def add(request: Request, visit: Submits) -> Response:
    """Add the schedule. A mistake leads back to the form."""
    form = await request.form()
    try:
        await visit.access.in_turn(_add, visit.access, form)
    except (Conflict, StoreUnavailable):
        raise
    except (Problem, HandoffError) as error:
        texts = {name: _get_text(form, name) for name in LABELS}
        follows_last = bool(form.get("follows_last"))
        return _render_page(
            request, visit, texts, follows_last=follows_last, problem=convert_error(error)
        )
    return go_to("/schedules")


def _render_page(
    request: Request,
    visit: Visit,
    texts: dict[str, str],
    *,
    follows_last: bool = False,
    problem: Problem | None = None,
) -> Response:
    problems: list[str] = []
    status = 200
    if problem is not None:
        problems, status = list(_iterate_problem_lines(problem)), problem.status
    return render(
        request,
        "new_schedule.html",
        visit,
        status=status,
        labels=LABELS,
        texts=texts,
        follows_last=follows_last,
        problems=problems,
        overlaps=list(Overlap),
        missed=list(Missed),
    )


def _iterate_problem_lines(problem: Problem) -> Iterator[str]:
    """Yield one line for each problem, with the label of its field."""
    for place, text in problem.errors:
        name = place.rpartition("/")[2]
        yield f"{LABELS.get(name, name)}: {text}"
    if not problem.errors:
        yield from problem.detail.splitlines()


def _add(access: Access, form: FormData) -> None:
    """Add the schedule of a form, as `POST /v1/schedules` does.

    Raises:
        Problem, UserError: a field cannot be used.
    """
    fields: dict[str, Any] = {"follows_last": bool(form.get("follows_last"))}
    fields |= _get_texts(form, OF_SCHEDULE)
    max_usd = _get_text(form, "max_usd_per_month")
    if max_usd:
        fields[MAX_OF_A_MONTH.limit] = MAX_OF_A_MONTH.parse("max_usd_per_month", max_usd)
    fields["job"] = _get_texts(form, OF_JOB)
    body = parse_body(json.dumps(fields).encode(), ScheduleBody)
    add_schedule(access, body)


def _get_texts(form: FormData, names: Iterable[str]) -> dict[str, str]:
    """Return the texts of the fields with these names that are not empty."""
    texts = {name: _get_text(form, name) for name in names}
    return {name: text for name, text in texts.items() if text}


def _get_text(form: FormData, name: str) -> str:
    return str(form.get(name, "")).strip()
