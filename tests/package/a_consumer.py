"""A user's program. `mypy --strict` checks it against the installed wheel."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import handoff_queue
from handoff_queue import (
    ApprovalOf,
    Approvals,
    AsyncClient,
    Client,
    JobEnded,
    JobId,
    JobOutline,
    JobResult,
    JobStatus,
    Limits,
    RecordedEvent,
    Request,
    Row,
    UnknownJob,
    UserError,
    connect_async,
)
from handoff_queue.testing import (
    MessagesServer,
    RunningSystem,
    in_turn,
    result_reply,
    running_system,
)


def submit(jobs: Client, question: str, folder: Path, signature: Mapping[str, Any]) -> JobId:
    """Submit a job. `signature`: a `celery.Signature`, which is a mapping."""
    request = Request(
        question,
        documents=folder,
        limits=Limits(max_turns=40),
        approvals=Approvals(what=(ApprovalOf.PLAN,)),
        on_end=signature,
    )
    return jobs.submit(request)


def status_of(jobs: Client, job_id: JobId) -> JobStatus | None:
    """Follow a job to its end, and return its status."""
    recorded: RecordedEvent
    for recorded in jobs.events(job_id):
        if isinstance(recorded.event, JobEnded):
            return recorded.event.status
    return None


def read(jobs: Client, job_id: JobId) -> tuple[str, tuple[str, ...]]:
    """Use the types of the results."""
    result: JobResult = jobs.result(job_id, wait_s=60)
    outline: JobOutline = jobs.outline(job_id)
    rows: list[Row] = jobs.rows(job_id)
    return result.status, (*result.notes, outline.status, *(row.key for row in rows))


async def ask(question: str) -> str:
    """Use the client for asyncio."""
    jobs: AsyncClient
    async with connect_async() as jobs:
        try:
            job_id = await jobs.submit(
                handoff_queue.Request(question, on_end={"task": "shop.answered"})
            )
        except (UserError, UnknownJob) as error:
            return str(error)
        types = [recorded.event.type async for recorded in jobs.events(job_id)]
        result = await jobs.result(job_id)
    return f"{result.status} after {len(types)} events"


def look_up(specialists: Path) -> JobStatus:
    """Run a specialist in a test."""
    system: RunningSystem
    with (
        MessagesServer(in_turn(result_reply("It is open."))) as model,
        running_system(model, specialists=specialists) as system,
    ):
        return system.jobs.result(system.jobs.submit(Request("A question")), wait_s=60).status
