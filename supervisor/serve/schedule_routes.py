"""Schedules: add, list, show, pause, unpause, run and remove."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Query, Response
from fastapi import Request as HttpRequest
from pydantic import BaseModel

from handoff_queue.shared.types.events import DEFAULT_TENANT
from handoff_queue.shared.types.schedule import ScheduleStatus
from handoff_queue.supervisor.client.argument_types import MAX_TENANT_CHARS
from handoff_queue.supervisor.client.schedules import ScheduleOptions
from handoff_queue.supervisor.serve.authentication import (
    Access,
    Caller,
    Operates,
    Reads,
    Submits,
    authenticate_caller,
    choose_tenant,
)
from handoff_queue.supervisor.serve.request_body import (
    ScheduleBody,
    build_request,
    decode_documents,
    describe_body,
    read_body,
)

router = APIRouter(prefix="/v1/schedules", tags=["schedules"])


class StartedJob(BaseModel):
    """A job that a schedule started."""

    job_id: str


TenantQuery = Annotated[
    str | None,
    Query(
        min_length=1, max_length=MAX_TENANT_CHARS, description="The owner. Default: the token's."
    ),
]


async def _get_tenant(
    caller: Annotated[Caller, Depends(authenticate_caller)], tenant: TenantQuery = None
) -> str | None:
    return choose_tenant(caller, tenant)


Tenant = Annotated[str | None, Depends(_get_tenant)]
Name = Annotated[str, Path(description="The name of a schedule.")]


@router.post(
    "",
    status_code=201,
    response_model=ScheduleStatus,
    summary="Add a schedule",
    openapi_extra=describe_body(ScheduleBody, is_required=True),
)
async def add(http: HttpRequest, access: Submits) -> ScheduleStatus:
    """Store a schedule and the documents of its job."""
    body = await read_body(http, access, ScheduleBody)
    return await access.in_turn(add_schedule, access, body)


def add_schedule(access: Access, body: ScheduleBody) -> ScheduleStatus:
    """Add the schedule of a body.

    Raises:
        UserError, Problem: a field cannot be used.
    """
    options = ScheduleOptions(
        cron=body.cron,
        timezone=body.timezone,
        overlap=body.overlap,
        missed=body.missed,
        max_microusd_per_month=body.max_microusd_per_month,
        follows_last=body.follows_last,
    )
    documents = decode_documents(body.job)
    request = build_request(body.job, documents, access.caller, access.settings, None)
    return access.client.add_schedule(body.name, request, options)


@router.get("", summary="List the schedules")
async def schedules(access: Reads, tenant: Tenant) -> list[ScheduleStatus]:
    """Return the schedules of the tenant, or of all tenants, in the order of their names."""
    return await access.jobs.schedules(tenant)


@router.get("/{name}", summary="Show a schedule")
async def show(access: Reads, name: Name, tenant: Tenant) -> ScheduleStatus:
    """Return the definition, the state and the spending of one schedule."""
    return await access.jobs.schedule(name, tenant or DEFAULT_TENANT)


@router.post("/{name}/pause", summary="Pause a schedule")
async def pause(access: Operates, name: Name, tenant: Tenant) -> ScheduleStatus:
    """Drop the slots of the schedule until it is unpaused."""
    return await access.jobs.pause_schedule(name, tenant or DEFAULT_TENANT)


@router.post("/{name}/unpause", summary="Unpause a schedule")
async def unpause(access: Operates, name: Name, tenant: Tenant) -> ScheduleStatus:
    """Start jobs again, from the first slot after now."""
    return await access.jobs.unpause_schedule(name, tenant or DEFAULT_TENANT)


@router.post("/{name}/run", status_code=201, summary="Run a schedule now")
async def run(
    access: Submits,
    name: Name,
    tenant: Tenant,
    idempotency_key: Annotated[
        str | None, Header(description="Requests with the same key start one job.")
    ] = None,
) -> StartedJob:
    """Start a job of the schedule at once."""
    owner = tenant or DEFAULT_TENANT
    return StartedJob(job_id=await access.jobs.run_schedule(name, owner, idempotency_key))


@router.delete("/{name}", status_code=204, response_class=Response, summary="Remove a schedule")
async def remove(access: Operates, name: Name, tenant: Tenant) -> Response:
    """Remove the schedule. Its jobs stay."""
    await access.jobs.remove_schedule(name, tenant or DEFAULT_TENANT)
    return Response(status_code=204)
