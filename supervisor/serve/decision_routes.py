"""Decisions about a job: cancel, retry, approve and reject."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi import Request as HttpRequest
from pydantic import BaseModel

from handoff_queue.supervisor.serve.access import Operates, VisibleJob
from handoff_queue.supervisor.serve.request_body import AnswerBody, RetryBody, body_of, takes

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["decisions"])


class Cancelled(BaseModel):
    """The effect of a cancellation."""

    job_id: str
    cancelled: bool
    """False: the job had ended already."""


class Accepted(BaseModel):
    """A decision that was stored. The job continues."""

    job_id: str


@router.post("/cancel", response_model=Cancelled, summary="Cancel")
async def cancel(access: Operates, job_id: VisibleJob) -> Cancelled:
    """Stop the job on all machines."""
    return Cancelled(job_id=job_id, cancelled=await access.jobs.cancel(job_id))


@router.post(
    "/retry",
    status_code=202,
    response_model=Accepted,
    summary="Retry",
    openapi_extra=takes(RetryBody),
)
async def retry(http: HttpRequest, access: Operates, job_id: VisibleJob) -> Accepted:
    """Repeat failed steps, fill gaps, or continue with higher limits."""
    body = await body_of(http, RetryBody)
    await access.jobs.retry(job_id, body.from_step, body.limits)
    return Accepted(job_id=job_id)


@router.post(
    "/approve",
    status_code=202,
    response_model=Accepted,
    summary="Approve",
    openapi_extra=takes(AnswerBody),
)
async def approve(http: HttpRequest, access: Operates, job_id: VisibleJob) -> Accepted:
    """Approve the plan, the steps or the answer of a waiting job."""
    body = await body_of(http, AnswerBody)
    await access.jobs.approve(job_id, body.note, body.plan, body.steps, body.rows, body.question)
    return Accepted(job_id=job_id)


@router.post(
    "/reject",
    status_code=202,
    response_model=Accepted,
    summary="Reject",
    openapi_extra=takes(AnswerBody),
)
async def reject(http: HttpRequest, access: Operates, job_id: VisibleJob) -> Accepted:
    """Reject the plan, the steps or the answer of a waiting job, with a note."""
    body = await body_of(http, AnswerBody)
    await access.jobs.reject(job_id, body.note, body.steps, body.plan, body.rows, body.question)
    return Accepted(job_id=job_id)
