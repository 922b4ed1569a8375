"""The tasks extension of MCP (SEP-2663): a call of `submit` is a task, and the task is the job.

The id of the task is the id of the job, and the state of the task is in Redis only. So each
server process answers for each task, also after a kill of all processes. An open question of the
job is an input request of the task.

The package `mcp` 2.3 has no code for this extension, only the interfaces for extensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from mcp_types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    RequestParams,
    Result,
)
from pydantic import Json, ValidationError
from pydantic.alias_generators import to_camel
from starlette.concurrency import run_in_threadpool

from handoff_queue.shared.store.job_info import JobInfo
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client.job_result import JobResult
from handoff_queue.supervisor.client.waiting_reasons import with_waiting
from handoff_queue.supervisor.serve.approval_questions import format_question, select_open_questions
from handoff_queue.supervisor.serve.authentication import Access
from handoff_queue.supervisor.serve.mcp.tools import build_tool_result
from handoff_queue.supervisor.serve.problem_documents import Problem

TASKS = "io.modelcontextprotocol/tasks"
"""The identifier of the extension."""
POLL_MS = 1_000
"""Milliseconds between two polls of a client."""
TaskStatus = Literal["working", "input_required", "completed", "cancelled"]


class TaskParams(RequestParams):
    """The task of a request."""

    task_id: str


class UpdateParams(TaskParams):
    """Answers to the input requests of a task."""

    input_responses: dict[str, Any]


class JobTask(Result, alias_generator=to_camel):
    """A job as a task."""

    result_type: Literal["task", "complete"]
    """`task` in the answer to a call of a tool, `complete` in the answer to `tasks/get`."""
    task_id: str
    status: TaskStatus
    status_message: str | None = None
    created_at: str
    """The time in the form of ISO 8601."""
    last_updated_at: str
    ttl_ms: int | None = None
    poll_interval_ms: int = POLL_MS
    input_requests: dict[str, ElicitRequest] | None = None
    result: CallToolResult | None = None

    def on_the_wire(self) -> dict[str, Any]:
        """Return the JSON form. The extension requires `ttlMs` also if it is null."""
        dumped = self.model_dump(by_alias=True, mode="json", exclude_none=True)
        return {"ttlMs": self.ttl_ms, **dumped}


class _Decision(ElicitResult):
    """The answer of a person to the question of a job."""

    class Content(RequestParams):
        decision: Literal["approve", "reject"]
        note: str | None = None
        arguments: Json[dict[str, Any]] | None = None


async def read_new_task(access: Access, job_id: JobId) -> JobTask:
    """Return the task of a job that was stored just now."""
    info = await access.jobs.info(job_id)
    at = _format_time(info.submitted_at)
    return JobTask(
        result_type="task", task_id=job_id, status="working", created_at=at, last_updated_at=at
    )


async def build_task(access: Access, job_id: JobId) -> JobTask:
    """Return the task of a job, with its result or its input request.

    Raises:
        HandoffError: as the Python client.
    """
    info = await access.jobs.info(job_id)
    fields: dict[str, Any] = {}
    match info.status:
        case JobStatus.OK | JobStatus.PARTIAL | JobStatus.FAILED:
            result = await access.jobs.result(job_id)
            fields = {"status": "completed", "result": build_tool_result(result)}
        case JobStatus.CANCELLED:
            fields = {"status": "cancelled"}
        case _:
            fields = await _build_open_task(access, info)
    last_updated_at = await _read_last_change(access, info)
    return JobTask(
        result_type="complete",
        task_id=job_id,
        created_at=_format_time(info.submitted_at),
        last_updated_at=_format_time(last_updated_at),
        **fields,
    )


async def _build_open_task(access: Access, info: JobInfo) -> dict[str, Any]:
    """Return the status of a job that has not ended, and its input request."""
    if info.approval:
        report = await access.jobs.result(info.job_id)
        requests: dict[str, ElicitRequest] = {}
        for entry in select_open_questions(report):
            requests[_build_key(entry["version"])] = _build_input_request(info, report, entry)
        if requests:
            return {"status": "input_required", "input_requests": requests}
    (waiting,) = await run_in_threadpool(with_waiting, access.store, [info])
    return {"status": "working", "status_message": waiting.waiting_for or str(info.status)}


def _build_key(version: int) -> str:
    """Return the key of a question: its version in the journal, so no two questions share it."""
    return f"approval-{version}"


def _build_input_request(info: JobInfo, report: JobResult, entry: dict[str, Any]) -> ElicitRequest:
    """Return the form for the answer to a question. Its text has the subject of the question."""
    message = f"{info.title}: {format_question(report, entry)}"
    properties = {
        "decision": {"type": "string", "enum": ["approve", "reject"]},
        "note": {"type": "string", "description": "For a rejection: the change."},
    }
    if entry["call"] is not None:
        about = "For an approval: other arguments of the tool call, as a JSON object."
        properties["arguments"] = {"type": "string", "description": about}
    schema = {"type": "object", "properties": properties, "required": ["decision"]}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


async def answer_task(access: Access, job_id: JobId, responses: Mapping[str, Any]) -> None:
    """Give the answer of a person to the open question of a job.

    Answers under other keys are ignored, and also the answer of a person who closed the form.

    Raises:
        Problem: the answer is not valid.
        HandoffError: as `AsyncClient.approve`.
    """
    result = await access.jobs.result(job_id)
    for entry in select_open_questions(result):
        version: int = entry["version"]
        if _build_key(version) in responses:
            await _answer_question(access, job_id, version, responses[_build_key(version)])


async def _answer_question(access: Access, job_id: JobId, version: int, response: Any) -> None:
    """Answer one question, and no later question."""
    try:
        answer = _Decision.model_validate(response)
        if answer.action == "cancel":
            return
        content = _Decision.Content(decision="reject")
        if answer.action == "accept":
            content = _Decision.Content.model_validate(answer.content or {})
    except ValidationError as error:
        raise Problem(
            422,
            'the answer must be {"decision": "approve" or "reject", "note": text}, and the'
            ' "arguments" of a tool call are a JSON object as text',
        ) from error
    if content.decision == "approve":
        await access.jobs.approve(
            job_id, content.note, question=version, arguments=content.arguments
        )
    else:
        await access.jobs.reject(job_id, content.note, question=version)


async def _read_last_change(access: Access, info: JobInfo) -> float:
    """Return the time of the last event of a job, in Unix seconds."""
    at = info.submitted_at
    async for recorded in access.jobs.events(info.job_id, info.version - 1, follow=False):
        at = recorded.at
    return at


def _format_time(seconds: float) -> str:
    """Return a Unix time in the form of ISO 8601."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()
