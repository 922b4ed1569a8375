"""The answer of a job as a stream: its parts while the synthesizer writes it, then the answer."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from fastapi import APIRouter, Response
from starlette.concurrency import run_in_threadpool

from handoff_queue.shared.types.events import (
    HandoffFinished,
    HandoffIssued,
    JobSubmitted,
    RecordedEvent,
)
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.supervisor.client.answer_draft import SYNTHESIZER, AnswerDraft
from handoff_queue.supervisor.client.async_client import HEARTBEAT_S
from handoff_queue.supervisor.serve.authentication import Access, Reads, VisibleJob
from handoff_queue.supervisor.serve.event_routes import (
    EVENT_STREAM,
    EventStream,
    sse,
)

POLL_S = 0.5
"""Seconds between two reads of the draft."""

router = APIRouter(prefix="/v1/jobs", tags=["events"])


class _DraftSources:
    """The handoffs of a job from which its draft is made."""

    def __init__(self) -> None:
        self.is_form = False
        """True: the answer is JSON, which has no draft."""
        self.writer: HandoffId | None = None
        """The handoff that writes the answer now."""
        self.finished: dict[HandoffId, HandoffFinished] = {}

    def add(self, recorded: RecordedEvent) -> None:
        """Update the handoffs with an event of the job."""
        match recorded.event:
            case JobSubmitted() as submitted:
                self.is_form = submitted.answer_schema is not None
            case HandoffIssued() as issued:
                if issued.assigned_to == SYNTHESIZER:
                    self.writer = issued.handoff_id
            case HandoffFinished() as finished:
                self.finished[finished.handoff_id] = finished
                if finished.handoff_id == self.writer:
                    self.writer = None


@router.get(
    "/{job_id}/answer",
    response_class=Response,
    responses={
        200: {
            "description": "The answer",
            "content": {EVENT_STREAM: {"schema": {"type": "string"}}},
        }
    },
    summary="Follow the answer",
)
async def answer(access: Reads, job_id: VisibleJob) -> Response:
    """Stream the answer while the model writes it.

    An event `part` has the next part of the draft: {text}. The event `answer` ends the stream:
    {status, answer, citations}. It replaces the parts, because checks may change a draft.
    """
    return EventStream(access, _answer(access, job_id))


async def _answer(access: Access, job_id: JobId) -> AsyncIterator[str]:
    sources, draft = _DraftSources(), AnswerDraft(access.store)
    sent_at = time.monotonic()
    async for batch in access.jobs.event_batches(job_id, 0, POLL_S):
        for recorded in batch:
            sources.add(recorded)
        text = ""
        if sources.writer is not None and not sources.is_form:
            finished = tuple(sources.finished.values())
            text = await run_in_threadpool(draft.more, job_id, sources.writer, finished)
        if text:
            yield sse("part", {"text": text})
        elif time.monotonic() - sent_at > HEARTBEAT_S:
            yield ": heartbeat\n\n"
        else:
            continue
        sent_at = time.monotonic()
    result = await access.jobs.result(job_id)
    yield sse("answer", result.model_dump(mode="json", include={"status", "answer", "citations"}))
