"""The page of the schedules: next times, last starts, and actions. The form for a new schedule."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData

from handoff_queue.shared.text.times import format_utc
from handoff_queue.shared.types.errors import Conflict, HandoffError, StoreUnavailable, UserError
from handoff_queue.shared.types.events import DEFAULT_TENANT
from handoff_queue.shared.types.limits import MAX_USD
from handoff_queue.shared.types.schedule import Missed, Overlap, ScheduleStatus
from handoff_queue.shared.types.usage import to_usd
from handoff_queue.supervisor.client.cron import format_slot, next_slot
from handoff_queue.supervisor.serve.authentication import Access
from handoff_queue.supervisor.serve.console.new_job_routes import AmountField
from handoff_queue.supervisor.serve.console.pages import (
    create_environment,
    go_to,
    render,
)
from handoff_queue.supervisor.serve.console.session import Operates, Reads, Submits, Visit
from handoff_queue.supervisor.serve.problem_documents import Problem, convert_error
from handoff_queue.supervisor.serve.request_body import ScheduleBody, parse_body
from handoff_queue.supervisor.serve.schedule_routes import add_schedule

MAX_SCHEDULES = 200
"""Most schedules of the page, in the order of their names."""
NEXT_TIMES = 3
"""Next times of each schedule on the page."""

router = APIRouter(prefix="/schedules", include_in_schema=False)
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


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """One row of the table."""

    schedule: ScheduleStatus
    next_times: tuple[str, ...]
    """In the words of the schedule's zone. Empty: the schedule is paused."""

    @property
    def last_time(self) -> str:
        """Return the time of the last slot with a job; '' if there was none."""
        if self.schedule.last_slot is None:
            return ""
        return _format_slot(self.schedule.last_slot, self.schedule.timezone)

    @property
    def spent_usd(self) -> float | None:
        return to_usd(self.schedule.spent_microusd)

    @property
    def most_usd(self) -> float | None:
        """Return the most money of a month. None: there is no limit."""
        return to_usd(self.schedule.max_microusd_per_month)


def read_schedules(access: Access) -> dict[str, Any]:
    """Return the values of the template."""
    schedules = access.client.schedules(access.tenant)
    rows = [ScheduleRow(schedule, _next_times(schedule)) for schedule in schedules[:MAX_SCHEDULES]]
    return {"rows": rows, "more": len(schedules) - len(rows)}


def _next_times(schedule: ScheduleStatus) -> tuple[str, ...]:
    if schedule.next_slot is None:
        return ()
    slots = [schedule.next_slot]
    try:
        while len(slots) < NEXT_TIMES:
            slots.append(next_slot(schedule.cron, schedule.timezone, slots[-1]))
    except (UserError, ImportError, ValueError):  # no further date, zone or package croniter
        pass
    return tuple(_format_slot(slot, schedule.timezone) for slot in slots)


def _format_slot(slot: float, timezone: str) -> str:
    """Return a slot in the words of its zone, or in UTC if this machine does not know the zone."""
    try:
        return format_slot(slot, timezone)
    except UserError:
        return format_utc(slot)


@router.get("")
async def schedules(request: Request, visit: Reads) -> Response:
    """Show the schedules that the user sees."""
    values = await run_in_threadpool(read_schedules, visit.access)
    return render(request, "schedules.html", visit, **values)


@router.get("/live")
async def live(visit: Reads) -> Response:
    """Return the part of the page that changes."""
    values = await run_in_threadpool(read_schedules, visit.access)
    template = create_environment().get_template("schedules_live.html")
    text = template.render(visit=visit, csrf=visit.csrf, **values)
    return Response(text, media_type="text/html")


@router.post("/{name}/pause")
async def pause(request: Request, visit: Operates, name: str) -> Response:
    """Drop the slots of a schedule until it is unpaused."""
    await visit.access.jobs.pause_schedule(name, await _get_owner(request, visit))
    return go_to("/schedules")


@router.post("/{name}/unpause")
async def unpause(request: Request, visit: Operates, name: str) -> Response:
    """End the pause of a schedule."""
    await visit.access.jobs.unpause_schedule(name, await _get_owner(request, visit))
    return go_to("/schedules")


@router.post("/{name}/run")
async def run(request: Request, visit: Submits, name: str) -> Response:
    """Start a job of a schedule at once, and show the job."""
    job_id = await visit.access.jobs.run_schedule(name, await _get_owner(request, visit))
    return go_to(f"/jobs/{job_id}")


@router.post("/{name}/remove")
async def remove(request: Request, visit: Operates, name: str) -> Response:
    """Remove a schedule. Its jobs stay."""
    await visit.access.jobs.remove_schedule(name, await _get_owner(request, visit))
    return go_to("/schedules")


async def _get_owner(request: Request, visit: Visit) -> str:
    """Return the tenant of the schedule that a form names. A tenant's user acts on its own only."""
    if visit.access.tenant is not None:
        return visit.access.tenant
    form = await request.form()
    return str(form.get("tenant", "")) or DEFAULT_TENANT


@router.get("/new")
async def new(request: Request, visit: Submits) -> Response:
    """Show the form."""
    return _render_page(request, visit, dict.fromkeys(LABELS, "") | {"timezone": "UTC"})


@router.post("/new")
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
