"""Quotes: plan a job and estimate its cost before it runs."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from fastapi import Request as HttpRequest
from fastapi.responses import JSONResponse

from handoff_queue.shared.types.cost_quote import Quote
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client.async_client import AsyncClient
from handoff_queue.supervisor.client.cost_quotes import (
    as_quoted,
    build_quote_json,
    exceeds,
    explain_missing_plan,
    is_decided,
)
from handoff_queue.supervisor.client.event_hub import FollowingEnded
from handoff_queue.supervisor.lifecycle.reduce import begin, evolve
from handoff_queue.supervisor.lifecycle.state import JobState
from handoff_queue.supervisor.serve.authentication import Submits
from handoff_queue.supervisor.serve.job_routes import MAX_WAIT_S, read_request
from handoff_queue.supervisor.serve.problem_documents import Problem
from handoff_queue.supervisor.serve.request_body import JobBody, describe_body

router = APIRouter(prefix="/v1/quotes", tags=["quotes"])


@router.post(
    "",
    response_class=Response,
    responses={
        200: {"description": "The quote, as `handoff quote --json` prints it."},
        202: {"description": "The job has no plan yet. Its result has the quote later."},
    },
    summary="Quote a job",
    openapi_extra=describe_body(JobBody, is_form=True, is_required=True),
)
async def quote(
    http: HttpRequest,
    access: Submits,
    wait_s: Annotated[
        float,
        Query(ge=0, le=MAX_WAIT_S, allow_inf_nan=False, description="Seconds to wait."),
    ] = 30.0,
    idempotency_key: Annotated[str | None, Header()] = None,
) -> Response:
    """Plan a job, estimate its cost, and let it wait for an approval.

    `POST /v1/jobs/{job_id}/approve` runs it with this plan. A job that may cost more than its
    `max_microusd` is cancelled at once.
    """
    request, _ = await read_request(http, access, idempotency_key)
    job_id = await access.jobs.submit(as_quoted(request))
    headers = {"Location": f"/v1/jobs/{job_id}"}
    try:
        async with access.waiting(), asyncio.timeout(wait_s):
            state = await _wait_for_quote(access.jobs, job_id)
    except (TimeoutError, FollowingEnded):
        return JSONResponse({"job_id": job_id, "quote": None}, 202, headers)
    if state.ended or state.plan is None:
        raise Problem(
            409, f"{job_id} {state.status.value}: {explain_missing_plan(state)}", headers=headers
        )
    is_refused = exceeds(state.quote or Quote(), request.limits.max_microusd)
    if is_refused:
        await access.jobs.cancel(job_id)
    teams: Any = ((await access.jobs.result(job_id)).plan or {}).get("child_jobs")
    return JSONResponse(build_quote_json(state, teams, is_refused=is_refused), 200, headers)


async def _wait_for_quote(jobs: AsyncClient, job_id: JobId) -> JobState:
    """Follow the job until it asks a person or has ended, and return its state."""
    state: JobState | None = None
    async for recorded in jobs.events(job_id):
        state = begin(job_id, recorded) if state is None else evolve(state, recorded)
        if is_decided(state):
            break
    assert state is not None  # a job has a first event
    return state
