"""Decisions about a job: cancel, retry, approve, reject, and messages to its agents."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header
from fastapi import Request as HttpRequest
from pydantic import BaseModel

from handoff_queue.supervisor.serve.authentication import Operates, VisibleJob
from handoff_queue.supervisor.serve.request_body import (
    AnswerBody,
    ApproveBody,
    MessageBody,
    RetryBody,
    choose_key,
    describe_body,
    read_body,
)

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["decisions"])

RetryKey = Annotated[
    str | None,
    Header(description="Requests with the same key and the same content are one retry."),
]


class CancelResult(BaseModel):
    """The effect of a cancellation."""

    job_id: str
    cancelled: bool
    """False: the job had ended already."""


class StoredDecision(BaseModel):
    """A decision that was stored. The job continues."""

    job_id: str


@router.post("/cancel", response_model=CancelResult, summary="Cancel")
async def cancel(access: Operates, job_id: VisibleJob) -> CancelResult:
    """Stop the job on all machines."""
    return CancelResult(job_id=job_id, cancelled=await access.jobs.cancel(job_id))


@router.post(
    "/retry",
    status_code=202,
    response_model=StoredDecision,
    summary="Retry",
    openapi_extra=describe_body(RetryBody),
)
async def retry(
    http: HttpRequest,
    access: Operates,
    job_id: VisibleJob,
    idempotency_key: RetryKey = None,
) -> StoredDecision:
    """Repeat failed steps, fill the gaps of a partial answer, or continue with higher limits."""
    body = await read_body(http, access, RetryBody)
    key = choose_key(body.idempotency_key, idempotency_key)
    await access.jobs.retry(job_id, body.from_step, body.limits, key=key)
    return StoredDecision(job_id=job_id)


class MessageStored(BaseModel):
    """A message that was stored."""

    job_id: str
    message_id: str
    version: int
    """The version of its event in the journal."""
    running: list[str]
    """The steps and the roles that run now. They take the message before their next turn."""


@router.post(
    "/messages",
    status_code=202,
    response_model=MessageStored,
    summary="Send a message to the agents",
    openapi_extra=describe_body(MessageBody, is_required=True),
)
async def say(
    http: HttpRequest,
    access: Operates,
    job_id: VisibleJob,
    idempotency_key: Annotated[
        str | None,
        Header(description="Requests with the same key and the same content are one message."),
    ] = None,
) -> MessageStored:
    """Send a message to all agents of a running job, or to the agents of one step.

    An agent that runs takes the message once, before its next turn. An agent that starts later
    has the message in its task.
    """
    body = await read_body(http, access, MessageBody)
    key = choose_key(body.idempotency_key, idempotency_key)
    receipt = await access.jobs.say(job_id, body.text, body.step, key=key)
    return MessageStored(
        job_id=job_id,
        message_id=receipt.message_id,
        version=receipt.version,
        running=list(receipt.running),
    )


@router.post(
    "/approve",
    status_code=202,
    response_model=StoredDecision,
    summary="Approve",
    openapi_extra=describe_body(ApproveBody),
)
async def approve(http: HttpRequest, access: Operates, job_id: VisibleJob) -> StoredDecision:
    """Approve the plan, the steps, a tool call or the answer of a waiting job."""
    body = await read_body(http, access, ApproveBody)
    await access.jobs.approve(
        job_id, body.note, body.plan, body.steps, body.rows, body.question, body.arguments
    )
    return StoredDecision(job_id=job_id)


@router.post(
    "/reject",
    status_code=202,
    response_model=StoredDecision,
    summary="Reject",
    openapi_extra=describe_body(AnswerBody),
)
async def reject(http: HttpRequest, access: Operates, job_id: VisibleJob) -> StoredDecision:
    """Reject the plan, the steps, a tool call or the answer of a waiting job, with a note."""
    body = await read_body(http, access, AnswerBody)
    await access.jobs.reject(job_id, body.note, body.steps, body.plan, body.rows, body.question)
    return StoredDecision(job_id=job_id)
