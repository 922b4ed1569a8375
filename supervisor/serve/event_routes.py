"""Events of a job: as a stream of server-sent events, or as pages of JSON. The answer of a job as a
stream: its parts while the synthesizer writes it, then the answer.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from handoff_queue.shared.types.errors import HandoffError
from handoff_queue.shared.types.events import (
    HandoffFinished,
    HandoffIssued,
    JobSubmitted,
    RecordedEvent,
)
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.names import Role
from handoff_queue.supervisor.client.answer_draft import AnswerDraft
from handoff_queue.supervisor.client.async_client import HEARTBEAT_S
from handoff_queue.supervisor.client.job_lookup import get_job_info
from handoff_queue.supervisor.client.json_forms import convert_event_record
from handoff_queue.supervisor.serve.authentication import Access, Reads, VisibleJob
from handoff_queue.supervisor.serve.problem_documents import Problem, convert_error

EVENT_STREAM = "text/event-stream"
STREAM_HEADERS = {"X-Accel-Buffering": "no"}
"""A proxy must not hold back events."""
MAX_EVENTS = 5_000
"""Most events of one page."""
MAX_VERSION = 2**53
"""The largest whole number that every reader of JSON holds exactly."""

router = APIRouter(prefix="/v1/jobs", tags=["events"])


class EventsPage(BaseModel):
    """A page of the journal of a job, the oldest event first."""

    job_id: str
    events: list[dict[str, Any]]
    """{version, at, event}"""
    next_after: int
    """The value of `after` for the next page."""
    has_more: bool
    """True if the journal has more events now."""


Version = Annotated[
    int | None, Query(ge=0, le=MAX_VERSION, description="Only events after this version.")
]
LastEventId = Annotated[
    int | None,
    Header(ge=0, le=MAX_VERSION, description="The version of the last event, from a browser."),
]


@router.get(
    "/{job_id}/events",
    response_class=Response,
    responses={
        200: {
            "description": "The events",
            "content": {
                EVENT_STREAM: {"schema": {"type": "string"}},
                "application/json": {"schema": {"$ref": "#/components/schemas/EventsPage"}},
            },
        },
        204: {"description": "The job has ended, and there are no further events."},
    },
    summary="Follow the events",
)
async def events(
    access: Reads,
    job_id: VisibleJob,
    after: Version = None,
    last_event_id: LastEventId = None,
    follow: Annotated[
        bool, Query(description="False: return a page of JSON instead of a stream.")
    ] = True,
    limit: Annotated[int, Query(ge=1, le=MAX_EVENTS, description="Events of a page.")] = 1_000,
) -> Response:
    """Stream the events of the job until its end. The id of an event is its version.

    A browser that reconnects sends the id of its last event. With `follow=false`, the response
    is a page of JSON.
    """
    start = after or 0
    if last_event_id is not None:
        start = last_event_id
    if not follow:
        page = await run_in_threadpool(_build_page, access, job_id, start, limit)
        return Response(page.model_dump_json(), media_type="application/json")
    return await stream_until_end(access, job_id, start, access.jobs.event_stream(job_id, start))


async def stream_until_end(
    access: Access, job_id: JobId, after: int, texts: AsyncIterator[str]
) -> Response:
    """Return a response that streams the events of a job after a version. If there can be none,
    the status is 204, because a browser does not connect again after 204.

    Args:
        texts: the events and heartbeats, as `format_sse` returns them.
    """
    info = await run_in_threadpool(get_job_info, access.store, job_id)
    if info.status.has_ended and after >= info.version:
        return Response(status_code=204)
    return EventStream(access, texts)


def _build_page(access: Access, job_id: JobId, after: int, limit: int) -> EventsPage:
    recorded = access.store.journal.read(job_id, after, limit + 1)
    page = recorded[:limit]
    next_after = page[-1].version if page else after
    return EventsPage(
        job_id=job_id,
        events=[convert_event_record(event) for event in page],
        next_after=next_after,
        has_more=len(recorded) > limit,
    )


class EventStream(StreamingResponse):
    """A response with server-sent events. It counts as a stream of the caller until its end."""

    def __init__(self, access: Access, texts: AsyncIterator[str]) -> None:
        """Make the response.

        Args:
            texts: the events and heartbeats, as `format_sse` returns them.
        """
        super().__init__(
            stream_while_authorized(access, texts), media_type=EVENT_STREAM, headers=STREAM_HEADERS
        )
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response.

        Raises:
            Problem: the caller has too many open streams.
        """
        with self._access.as_stream():
            await super().__call__(scope, receive, send)


async def stream_while_authorized(access: Access, stream: AsyncIterator[str]) -> AsyncIterator[str]:
    """Yield a stream as long as the caller has access. An error ends the stream with an event
    `problem`, because the status was sent.
    """
    try:
        async for text in stream:
            await access.check_token()
            yield text
    except (Problem, HandoffError) as error:
        yield format_sse("problem", convert_error(error).build_document())


def format_sse(event: str, data: Any) -> str:
    """Return a server-sent event with JSON."""
    return f"event: {event}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"


POLL_S = 0.5
"""Seconds between two reads of the draft."""


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
                if issued.assigned_to == Role.SYNTHESIZER:
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
    return EventStream(access, _iterate_answer(access, job_id))


async def _iterate_answer(access: Access, job_id: JobId) -> AsyncIterator[str]:
    sources, draft = _DraftSources(), AnswerDraft(access.store)
    sent_at = time.monotonic()
    async for batch in access.jobs.event_batches(job_id, 0, POLL_S):
        for recorded in batch:
            sources.add(recorded)
        text = ""
        if sources.writer is not None and not sources.is_form:
            finished = tuple(sources.finished.values())
            text = await run_in_threadpool(draft.take_new_part, job_id, sources.writer, finished)
        if text:
            yield format_sse("part", {"text": text})
        elif time.monotonic() - sent_at > HEARTBEAT_S:
            yield ": heartbeat\n\n"
        else:
            continue
        sent_at = time.monotonic()
    result = await access.jobs.result(job_id)
    yield format_sse(
        "answer", result.model_dump(mode="json", include={"status", "answer", "citations"})
    )
