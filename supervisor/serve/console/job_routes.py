"""The page of one job, its live data and its actions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData

from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.limits import MAX_COUNT, MAX_USD, NewLimits
from handoff_queue.supervisor.client.async_client import HEARTBEAT_S
from handoff_queue.supervisor.serve.console.document_routes import (
    MAX_ON_THE_JOB_PAGE,
    list_documents,
)
from handoff_queue.supervisor.serve.console.inbox_routes import parse_question_version
from handoff_queue.supervisor.serve.console.job_page import read_job
from handoff_queue.supervisor.serve.console.new_job_routes import AmountField
from handoff_queue.supervisor.serve.console.pages import create_environment, go_to, render
from handoff_queue.supervisor.serve.console.session import Operates, Reads, VisibleJob, Visit
from handoff_queue.supervisor.serve.event_routes import MAX_VERSION, stream_until_end
from handoff_queue.supervisor.serve.job_routes import find_handoff

Version = Annotated[int, Query(ge=0, le=MAX_VERSION)]
LastEventId = Annotated[int | None, Header(ge=0, le=MAX_VERSION)]

HIGHER_LIMITS = {
    "max_usd": AmountField("max_microusd", 1_000_000, MAX_USD, "2.50"),
    "max_turns": AmountField("max_turns", 1, MAX_COUNT, "400"),
}
"""Fields of a retry that raise a limit of the job."""

router = APIRouter(prefix="/jobs/{job_id}", include_in_schema=False)


@router.get("")
async def job(request: Request, visit: Reads, job_id: VisibleJob) -> Response:
    """Show a job."""
    page = await run_in_threadpool(read_job, visit.access.store, job_id)
    documents = await run_in_threadpool(
        list_documents, visit.access.store, job_id, 0, MAX_ON_THE_JOB_PAGE, has_children=False
    )
    return await run_in_threadpool(
        render, request, "job.html", visit, page=page, documents=documents
    )


@router.get("/live")
async def live(visit: Reads, job_id: VisibleJob) -> dict[str, Any]:
    """Return the parts of the page that change: HTML, and the data of the drawing."""
    page = await run_in_threadpool(read_job, visit.access.store, job_id)

    def parts() -> dict[str, Any]:
        return {
            "version": page.record.job.version,
            "status": page.report.status.value,
            "html": create_environment().get_template("job_live.html").render(page=page),
            "drawing": page.drawing(),
        }

    return await run_in_threadpool(parts)


@router.get("/handoffs/{handoff_id}")
async def handoff(visit: Reads, job_id: VisibleJob, handoff_id: str) -> dict[str, Any]:
    """Return the message, the result and the turns of one handoff."""
    report = await find_handoff(visit.access, job_id, handoff_id)
    return report.model_dump(mode="json")


@router.get("/events")
async def events(
    visit: Reads, job_id: VisibleJob, after: Version = 0, last_event_id: LastEventId = None
) -> Response:
    """Stream a server-sent event for each batch of events: its last version and type.

    The page then asks for the parts that changed. `/v1/jobs/{job_id}/events` has all events.
    """
    start = last_event_id if last_event_id is not None else after
    texts = _iterate_last_events(visit, job_id, start)
    return await stream_until_end(visit.access, job_id, start, texts)


async def _iterate_last_events(visit: Visit, job_id: JobId, after: int) -> AsyncIterator[str]:
    async for batch in visit.access.jobs.event_batches(job_id, after, wait_s=HEARTBEAT_S):
        if batch:
            yield f"id: {batch[-1].version}\ndata: {batch[-1].event.type}\n\n"
        else:
            yield ": heartbeat\n\n"


@router.post("/cancel")
async def cancel(visit: Operates, job_id: VisibleJob) -> Response:
    """Cancel the job."""
    await visit.access.jobs.cancel(job_id)
    return go_to(f"/jobs/{job_id}")


@router.post("/retry")
async def retry(request: Request, visit: Operates, job_id: VisibleJob) -> Response:
    """Repeat the job from a step, or its failed steps and gaps, and raise its limits."""
    form = await request.form()
    limits: dict[str, int] = {}
    for name, amount in HIGHER_LIMITS.items():
        text = str(form.get(name, "")).strip()
        if text:
            limits[amount.limit] = amount.parse(name, text)
    from_step = str(form.get("from_step", "")) or None
    await visit.access.jobs.retry(job_id, from_step, NewLimits(**limits))
    return go_to(f"/jobs/{job_id}")


@router.post("/say")
async def say(request: Request, visit: Operates, job_id: VisibleJob) -> Response:
    """Send a message to the agents of the job, or of one step."""
    form = await request.form()
    step = str(form.get("step", "")) or None
    await visit.access.jobs.say(job_id, str(form.get("text", "")), step)
    return go_to(f"/jobs/{job_id}")


@router.post("/approve")
async def approve(request: Request, visit: Operates, job_id: VisibleJob) -> Response:
    """Approve the question that the page showed."""
    form = await request.form()
    await visit.access.jobs.approve(job_id, _get_note(form), question=parse_question_version(form))
    return go_to(f"/jobs/{job_id}")


@router.post("/reject")
async def reject(request: Request, visit: Operates, job_id: VisibleJob) -> Response:
    """Reject the question that the page showed."""
    form = await request.form()
    await visit.access.jobs.reject(job_id, _get_note(form), question=parse_question_version(form))
    return go_to(f"/jobs/{job_id}")


def _get_note(form: FormData) -> str | None:
    return str(form.get("note", "")).strip() or None
