"""Jobs: submit, list, show, read results, export and delete."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from fastapi import Request as HttpRequest
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from handoff_queue.shared.store.job_filter import JobFilter
from handoff_queue.shared.store.job_info import JobInfo
from handoff_queue.shared.types.errors import UnknownJob, UserError
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.job_options import Mode, Priority
from handoff_queue.supervisor.client.argument_types import check_tenant
from handoff_queue.supervisor.client.event_hub import FollowingEnded
from handoff_queue.supervisor.client.export import Export
from handoff_queue.supervisor.client.job_outline import JobOutline
from handoff_queue.supervisor.client.job_record import is_letter_of
from handoff_queue.supervisor.client.job_result import HandoffReport, JobResult
from handoff_queue.supervisor.client.json_forms import convert_job_info
from handoff_queue.supervisor.client.request import Request, get_named_specialists
from handoff_queue.supervisor.client.waiting_reasons import with_waiting
from handoff_queue.supervisor.serve.authentication import (
    Access,
    Operates,
    Reads,
    Submits,
    VisibleJob,
    check_visible,
)
from handoff_queue.supervisor.serve.problem_documents import Problem
from handoff_queue.supervisor.serve.request_body import (
    JobBody,
    build_request,
    describe_body,
    read_job_body,
)

MAX_JOBS = 500
"""Most jobs of one page of the list."""
MAX_WAIT_S = 60.0
"""Longest time in seconds for which a request for a result waits. Proxies often close a silent
connection after that time.
"""

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


class SubmittedJob(BaseModel):
    """A job that was stored."""

    job_id: str
    left_out: list[str] = []
    """One line for each document that was left out."""
    unserved: list[str] = []
    """Specialists of the request that no live worker serves. Their steps wait for a worker."""


class JobsPage(BaseModel):
    """A page of the list of jobs, the newest first."""

    jobs: list[dict[str, Any]]
    """The jobs, as `handoff list --json` prints them."""
    next_cursor: str | None
    """The cursor of the next page. Null: there are no more jobs."""


UnixTime = Annotated[
    float | None, Query(ge=0, le=1e11, allow_inf_nan=False, description="Unix time in seconds.")
]


class JobPlan(BaseModel):
    """The plan of a job."""

    job_id: str
    status: JobStatus
    plan: dict[str, Any] | None
    """The plan, as in the result. Null: there is no plan yet."""


RETURNED_DOCUMENTS: tuple[type[BaseModel], ...] = (JobOutline, HandoffReport, JobResult, Export)
"""The documents of the client library that operations return."""


def describe_response(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """Return the part of an OpenAPI operation with its response: one of `RETURNED_DOCUMENTS`.

    FastAPI would take a second to describe the events in an export.
    """
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {200: {"description": "Found", "content": {"application/json": {"schema": schema}}}}


def build_json_response(text: str) -> Response:
    """Return a response with a JSON text."""
    return Response(text, media_type="application/json")


async def read_request(
    http: HttpRequest, access: Access, header_key: str | None
) -> tuple[Request, list[str]]:
    """Read the body of a request, and return the values of `prepare_request`. Raises as that."""
    body, documents = await read_job_body(http, access)
    return await access.in_turn(prepare_request, access, body, documents, header_key)


def prepare_request(
    access: Access,
    body: JobBody,
    documents: dict[str, bytes],
    header_key: str | None = None,
) -> tuple[Request, list[str]]:
    """Return the checked request of a job, and a line for each document that was left out.

    Args:
        header_key: value of the header Idempotency-Key.

    Raises:
        Problem, UserError: the body cannot be used, or the caller has no job `after`.
    """
    request = build_request(body, documents, access.caller, access.settings, header_key)
    access.client.check(request)
    if request.after is not None:
        check_visible(access.caller, access.store, request.after)
    if request.documents is None:
        return request, []
    reading = access.client.read_documents(request)
    return replace(request, documents=reading), list(reading.notes)


async def store_job(access: Access, request: Request, left_out: list[str]) -> SubmittedJob:
    """Store the job of a checked request.

    Args:
        left_out: a line for each document that was left out.

    Raises:
        HandoffError: the job is refused, or Redis cannot be reached.
    """
    job_id = await access.jobs.submit(request)
    unserved: set[str] = get_named_specialists(request)
    if unserved:
        presence = await run_in_threadpool(access.store.presence.read_presence)
        unserved -= presence.queues
    return SubmittedJob(job_id=job_id, left_out=left_out, unserved=sorted(unserved))


@router.post(
    "",
    status_code=202,
    response_model=SubmittedJob,
    summary="Submit a job",
    openapi_extra=describe_body(JobBody, is_form=True, is_required=True),
)
async def submit(
    http: HttpRequest,
    response: Response,
    access: Submits,
    idempotency_key: Annotated[
        str | None,
        Header(description="Requests with the same key and the same content are one job."),
    ] = None,
) -> SubmittedJob:
    """Store a job and return its id at once.

    Send JSON, or a form: its field `request` holds the JSON, and every other part is a document
    under its file name.
    """
    request, left_out = await read_request(http, access, idempotency_key)
    submitted = await store_job(access, request, left_out)
    response.headers["Location"] = f"/v1/jobs/{submitted.job_id}"
    return submitted


@router.get("", response_model=JobsPage, summary="List jobs")
async def list_jobs(
    access: Reads,
    status: Annotated[
        list[JobStatus] | None, Query(description="Only jobs with this status. Repeatable.")
    ] = None,
    tenant: Annotated[
        str | None, Query(min_length=1, description="Only jobs of this tenant.")
    ] = None,
    submitted_before: UnixTime = None,
    submitted_after: UnixTime = None,
    specialist: Annotated[
        str | None,
        Query(min_length=1, description="Only jobs in which this specialist got a handoff."),
    ] = None,
    failed_specialist: Annotated[
        str | None,
        Query(min_length=1, description="Only jobs in which this specialist failed a handoff."),
    ] = None,
    mode: Annotated[Mode | None, Query(description="Only jobs of this mode.")] = None,
    priority: Annotated[Priority | None, Query(description="Only jobs of this priority.")] = None,
    text: Annotated[
        str | None,
        Query(min_length=1, max_length=200, description="Only jobs whose title or id has it."),
    ] = None,
    min_microusd: Annotated[
        int | None, Query(ge=0, le=10**15, description="Only jobs that cost at least this much.")
    ] = None,
    cursor: Annotated[str | None, Query(description="`next_cursor` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_JOBS)] = 50,
) -> JobsPage:
    """Return the newest jobs that match. A page may have fewer jobs than `limit`."""
    if tenant is not None:
        check_tenant(tenant)
    if access.tenant is not None:
        if tenant not in (None, access.tenant):
            return JobsPage(jobs=[], next_cursor=None)
        tenant = access.tenant
    if cursor is not None and not is_cursor(cursor):
        must = "must be the next_cursor of a page"
        raise Problem(422, f"cursor: {must}", errors=[("#query/cursor", must)])
    where = JobFilter(
        statuses=frozenset(status or ()),
        tenant=tenant,
        submitted_before=submitted_before,
        submitted_after=submitted_after,
        mode=mode,
        priority=priority,
        text=text,
        min_microusd=min_microusd,
        specialist=specialist,
        failed_specialist=failed_specialist,
    )
    job_infos, place = await run_in_threadpool(_read_page, access, where, limit, cursor)
    jobs = [convert_job_info(info) for info in job_infos]
    return JobsPage(jobs=jobs, next_cursor=build_cursor(place))


def _read_page(
    access: Access, where: JobFilter, limit: int, cursor: str | None
) -> tuple[list[JobInfo], str]:
    """Return the jobs of a page, and the place of the next page."""
    job_ids, place = access.store.jobs.read_page(where, limit, parse_cursor(cursor))
    job_infos = access.store.jobs.read(job_ids)
    return with_waiting(access.store, job_infos), place


@router.get(
    "/{job_id}", response_class=Response, responses=describe_response(JobOutline), summary="Show"
)
async def show(access: Reads, job_id: VisibleJob) -> Response:
    """Return a summary of the job, as `handoff show --json` prints it."""
    outline = await access.jobs.outline(job_id)
    return build_json_response(outline.to_json())


@router.get("/{job_id}/plan", response_model=JobPlan, summary="Read the plan")
async def plan(access: Reads, job_id: VisibleJob) -> JobPlan:
    """Return the plan of the job."""
    result = await access.jobs.result(job_id)
    return JobPlan(job_id=job_id, status=result.status, plan=result.plan)


@router.get(
    "/{job_id}/handoffs/{handoff_id}",
    response_class=Response,
    responses=describe_response(HandoffReport),
    summary="Read a handoff in full",
)
async def handoff(access: Reads, job_id: VisibleJob, handoff_id: str) -> Response:
    """Return the message, the result and the turns of one handoff."""
    report = await find_handoff(access, job_id, handoff_id)
    return build_json_response(report.model_dump_json())


async def find_handoff(access: Access, job_id: JobId, handoff_id: str) -> HandoffReport:
    """Return the report on a handoff.

    Raises:
        UnknownJob: there is no such job.
        Problem: the job has no such handoff.
    """
    try:
        (report,) = await access.jobs.handoffs(job_id, [HandoffId(handoff_id)])
    except UnknownJob:
        raise
    except UserError as error:
        raise Problem(404, str(error)) from error
    return report


@router.get(
    "/{job_id}/result",
    response_class=Response,
    responses=describe_response(JobResult),
    summary="Read the result",
)
async def result(
    access: Reads,
    job_id: VisibleJob,
    wait_s: Annotated[
        float,
        Query(
            ge=0,
            le=MAX_WAIT_S,
            allow_inf_nan=False,
            description="Seconds to wait for the end of the job.",
        ),
    ] = 0.0,
) -> Response:
    """Return the answer, its sources and all results so far, as `handoff result --json` does."""
    job_result = await wait_for_result(access, job_id, wait_s)
    return build_json_response(job_result.to_json())


async def wait_for_result(access: Access, job_id: JobId, wait_s: float) -> JobResult:
    """Wait up to `wait_s` seconds for the end of a job, and return its result so far. A server
    that stops ends the wait early.
    """
    if wait_s > 0:
        async with access.waiting():
            with suppress(FollowingEnded):
                await access.jobs.wait(job_id, wait_s)
    return await access.jobs.result(job_id)


@router.get(
    "/{job_id}/export",
    response_class=Response,
    responses=describe_response(Export),
    summary="Export",
)
async def export(
    access: Reads,
    job_id: VisibleJob,
    texts: Annotated[bool, Query(description="Include the texts of the documents.")] = False,
) -> Response:
    """Return everything about the job, as `handoff export` writes it."""
    exported = await access.jobs.export(job_id, texts=texts)
    if access.tenant is not None:
        letters = tuple(letter for letter in exported.letters if is_letter_of(letter, job_id))
        exported = exported.model_copy(update={"letters": letters})
    return build_json_response(exported.to_json())


@router.delete("/{job_id}", status_code=204, response_class=Response, summary="Delete")
async def delete(access: Operates, job_id: VisibleJob) -> Response:
    """Delete an ended job with all its data and its child jobs."""
    await access.jobs.delete(job_id)
    return Response(status_code=204)


_CURSOR = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20})?(e\+[0-9]{1,2})?")


def is_cursor(text: str) -> bool:
    """Return whether a text has the form of a cursor."""
    return _CURSOR.fullmatch(text) is not None


def parse_cursor(cursor: str | None) -> str:
    """Return the place in the list of jobs at which a page starts; '' for the first page."""
    return f"({cursor}" if cursor else ""


def build_cursor(place: str) -> str | None:
    """Return the cursor of the page at a place. None: there are no more jobs."""
    return place.lstrip("(") or None
