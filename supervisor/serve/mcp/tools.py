"""The tools of the MCP server. Each tool has the arguments and the texts of the HTTP API."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from mcp_types import CallToolResult, TextContent, Tool, ToolAnnotations
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from starlette.concurrency import run_in_threadpool

from handoff_queue.shared.text.word_forms import suggest_name
from handoff_queue.shared.types.api_tokens import AccessLevel
from handoff_queue.shared.types.errors import HandoffError
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.json_values import check_storable
from handoff_queue.supervisor.client.job_result import JobResult
from handoff_queue.supervisor.client.json_forms import convert_event_record
from handoff_queue.supervisor.serve.approval_questions import format_question, select_open_questions
from handoff_queue.supervisor.serve.authentication import Access, check_visible
from handoff_queue.supervisor.serve.fleet_routes import list_specialists
from handoff_queue.supervisor.serve.job_routes import (
    MAX_WAIT_S,
    SubmittedJob,
    prepare_request,
    store_job,
    wait_for_result,
)
from handoff_queue.supervisor.serve.problem_documents import (
    Problem,
    build_validation_problem,
    convert_error,
)
from handoff_queue.supervisor.serve.request_body import JobBody, decode_documents

MAX_EVENTS = 200
"""Most events of one call."""
_SHOWN_FIELDS = "job_id", "status", "answer", "citations", "gaps", "approvals", "usage", "notes"
"""Fields of `JobResult` in a result for an MCP client. The others grow with the handoffs."""


class _Arguments(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, hide_input_in_errors=True)


class JobArguments(_Arguments):
    """A job."""

    job_id: Annotated[str, Field(description="The id of the job.", examples=["j-k5tq2wbz7x3mhd4n"])]


class ResultArguments(JobArguments):
    """A job, and the time to wait for its end."""

    wait_s: Annotated[
        float, Field(ge=0, le=MAX_WAIT_S, description="Seconds to wait for the end of the job.")
    ] = 0.0


class EventsArguments(JobArguments):
    """A job, and the place in its journal."""

    after: Annotated[int, Field(ge=0, le=2**53, description="`next_after` of the call before.")] = 0
    wait_s: Annotated[
        float, Field(ge=0, le=MAX_WAIT_S, description="Seconds to wait for a new event.")
    ] = 0.0


class AnswerArguments(JobArguments):
    """An answer to the open question of a job."""

    question: Annotated[
        int,
        Field(
            ge=1,
            description="The question that the person has seen: the `version` of its entry in"
            " `approvals` of `result`. A newer question is not answered.",
        ),
    ]
    note: Annotated[str | None, Field(description="The change that is needed.")] = None
    steps: Annotated[tuple[str, ...], Field(description="Only these steps.")] = ()
    rows: Annotated[
        tuple[str, ...],
        Field(description="Only the copies with these keys of a step with `for_each`."),
    ] = ()
    plan: Annotated[JsonValue, Field(description="A plan that replaces the plan of the job.")] = (
        None
    )


class ApproveArguments(AnswerArguments):
    """An approval of the open question of a job."""

    arguments: Annotated[
        dict[str, JsonValue] | None,
        Field(description="Arguments that replace those of the tool call in question."),
    ] = None


class NoArguments(_Arguments):
    """No arguments."""


Run = Callable[[Access, Any], Awaitable[CallToolResult]]


@dataclass(frozen=True, slots=True)
class QueueTool:
    """A tool of the MCP server."""

    description: str
    level: AccessLevel
    """The access level that a caller needs."""
    arguments: type[BaseModel]
    run: Run
    hints: ToolAnnotations


def list_tools() -> list[Tool]:
    """Return the tools in the form of `tools/list`."""
    tools: list[Tool] = []
    for name, tool in TOOLS.items():
        tools.append(
            Tool(
                name=name,
                description=tool.description,
                input_schema=tool.arguments.model_json_schema(),
                annotations=tool.hints,
            )
        )
    return tools


def get_tool(name: str) -> QueueTool:
    """Return the tool of a name.

    Raises:
        Problem: there is no such tool.
    """
    if name not in TOOLS:
        raise Problem(404, f"there is no tool {name[:60]!r}; {suggest_name(name, tuple(TOOLS))}")
    return TOOLS[name]


def parse_arguments(kind: type[BaseModel], arguments: Mapping[str, Any] | None) -> Any:
    """Return the arguments of a call.

    Raises:
        Problem: an argument is not valid.
    """
    fields = dict(arguments or {})
    try:
        check_storable(fields)
        return kind.model_validate_json(json.dumps(fields))
    except ValidationError as error:
        raise build_validation_problem(error, kind) from error
    except ValueError as error:
        raise Problem(422, f"the arguments: {error}") from error


async def run_tool(
    access: Access, tool: QueueTool, arguments: Mapping[str, Any] | None
) -> CallToolResult:
    """Run a tool. An error of the user is one line of the result."""
    try:
        parsed_arguments = await access.in_turn(parse_arguments, tool.arguments, arguments)
        return await tool.run(access, parsed_arguments)
    except (Problem, HandoffError) as error:
        return build_error_result(convert_error(error).detail)


def build_error_result(text: str) -> CallToolResult:
    """Return the result of a call that failed."""
    return CallToolResult(content=[TextContent(text=text)], is_error=True)


def _build_result(value: dict[str, Any], text: str = "") -> CallToolResult:
    """Return a JSON object as a result. The model reads `text`, or the object if `text` is ''."""
    visible_text = text or json.dumps(value, ensure_ascii=False)
    return CallToolResult(content=[TextContent(text=visible_text)], structured_content=value)


async def find_visible_job(access: Access, job_id: str) -> JobId:
    """Return the id of a job that the caller may see.

    Raises:
        UnknownJob: there is no such job, or it belongs to another tenant.
    """
    return await run_in_threadpool(check_visible, access.caller, access.store, job_id)


async def submit_body(access: Access, body: JobBody) -> SubmittedJob:
    """Store the job of a body.

    Raises:
        Problem, HandoffError: as the HTTP API.
    """
    documents = decode_documents(body)
    request, left_out = await access.in_turn(prepare_request, access, body, documents)
    return await store_job(access, request, left_out)


async def _submit(access: Access, body: JobBody) -> CallToolResult:
    submitted = await submit_body(access, body)
    return _build_result(submitted.model_dump())


async def _status(access: Access, arguments: JobArguments) -> CallToolResult:
    job_id = await find_visible_job(access, arguments.job_id)
    outline = await access.jobs.outline(job_id)
    return _build_result(json.loads(outline.to_json()))


async def _read_result(access: Access, arguments: ResultArguments) -> CallToolResult:
    job_id = await find_visible_job(access, arguments.job_id)
    result = await wait_for_result(access, job_id, arguments.wait_s)
    return build_tool_result(result)


def build_tool_result(result: JobResult) -> CallToolResult:
    """Return the result of a job. Its text is the answer, or the status while there is none.

    The result of a failed job is an error. The result of a waiting job has its question, and
    the plan that the question may be about.
    """
    value: dict[str, Any] = json.loads(result.to_json())
    lines: list[str] = []
    if result.answer is None:
        lines.append(f"{result.job_id}: {result.status}")
    elif isinstance(result.answer, str):
        lines.append(result.answer)
    else:
        lines.append(json.dumps(result.answer, ensure_ascii=False))
    lines += result.notes
    names = list(_SHOWN_FIELDS)
    for entry in select_open_questions(result):
        lines.append(f"question {entry['version']}: {format_question(result, entry)}")
        names.append("plan")
    shown_fields = {name: value[name] for name in names if name in value}
    tool_result = _build_result(shown_fields, "\n".join(lines))
    return tool_result.model_copy(update={"is_error": result.status is JobStatus.FAILED})


async def _events(access: Access, arguments: EventsArguments) -> CallToolResult:
    job_id = await find_visible_job(access, arguments.job_id)
    events: list[dict[str, Any]] = []
    async with access.waiting():
        batches = access.jobs.event_batches(job_id, arguments.after, arguments.wait_s)
        async for batch in batches:
            events += map(convert_event_record, batch[:MAX_EVENTS])
            break
        await batches.aclose()  # type: ignore[attr-defined]
    after = events[-1]["version"] if events else arguments.after
    return _build_result({"job_id": job_id, "events": events, "next_after": after})


async def _approve(access: Access, arguments: ApproveArguments) -> CallToolResult:
    job_id = await find_visible_job(access, arguments.job_id)
    await access.jobs.approve(
        job_id,
        arguments.note,
        plan=arguments.plan,
        steps=arguments.steps,
        rows=arguments.rows,
        question=arguments.question,
        arguments=arguments.arguments,
    )
    return _build_result({"job_id": job_id, "decision": "approved"})


async def _reject(access: Access, arguments: AnswerArguments) -> CallToolResult:
    job_id = await find_visible_job(access, arguments.job_id)
    await access.jobs.reject(
        job_id,
        arguments.note,
        plan=arguments.plan,
        steps=arguments.steps,
        rows=arguments.rows,
        question=arguments.question,
    )
    return _build_result({"job_id": job_id, "decision": "rejected"})


async def _cancel(access: Access, arguments: JobArguments) -> CallToolResult:
    job_id = await find_visible_job(access, arguments.job_id)
    is_cancelled = await access.jobs.cancel(job_id)
    return _build_result({"job_id": job_id, "cancelled": is_cancelled})


async def _specialists(access: Access, _: NoArguments) -> CallToolResult:
    specialists = await run_in_threadpool(list_specialists, access)
    return _build_result({"specialists": specialists})


_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_STORES = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=True)
_DECIDES = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)

SUBMIT = "submit"
"""The tool whose call is a task."""
TOOLS: dict[str, QueueTool] = {
    SUBMIT: QueueTool(
        "Give a job to a team of specialists. Returns the id of the job at once. With the tasks"
        " extension, the call is a task with this id, and its result is the answer. Calls with the"
        " same `idempotency_key` are one job.",
        AccessLevel.SUBMIT,
        JobBody,
        _submit,
        _STORES,
    ),
    "status": QueueTool(
        "Show a job: its status, its plan, its running steps, and the reasons of its waits.",
        AccessLevel.READ,
        JobArguments,
        _status,
        _READS,
    ),
    "result": QueueTool(
        "Read the answer of a job with its sources. While the job runs, read its status and its"
        " open questions.",
        AccessLevel.READ,
        ResultArguments,
        _read_result,
        _READS,
    ),
    "events": QueueTool(
        f"Read at most {MAX_EVENTS} events of a job, the oldest first. Call again with"
        " `next_after` as `after`.",
        AccessLevel.READ,
        EventsArguments,
        _events,
        _READS,
    ),
    "approve": QueueTool(
        "Approve the plan, the steps, a tool call or the answer of a waiting job. Read `result`"
        " first, and name the `question` that the person has seen.",
        AccessLevel.OPERATE,
        ApproveArguments,
        _approve,
        _DECIDES,
    ),
    "reject": QueueTool(
        "Reject the plan, the steps, a tool call or the answer of a waiting job, with a note. Read"
        " `result` first, and name the `question` that the person has seen.",
        AccessLevel.OPERATE,
        AnswerArguments,
        _reject,
        _DECIDES,
    ),
    "cancel": QueueTool(
        "Stop a job on all machines.", AccessLevel.OPERATE, JobArguments, _cancel, _DECIDES
    ),
    "list_specialists": QueueTool(
        "List the specialists of live workers.", AccessLevel.READ, NoArguments, _specialists, _READS
    ),
}
"""The tools by name."""
