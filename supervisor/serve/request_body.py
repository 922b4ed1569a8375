"""Bodies of requests: JSON, or a form with the JSON and the documents as parts.

A body never names a file of the server. Documents, workflows and facts come in the body.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from fastapi import Request as HttpRequest
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from starlette.datastructures import UploadFile

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.api_tokens import AccessLevel
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import DEFAULT_TENANT
from handoff_queue.shared.types.gates import FactTable, Gates
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals, Mode, OnTimeout, Priority
from handoff_queue.shared.types.json_values import has_more_values, refuse_repeats
from handoff_queue.shared.types.limits import JobLimits, NewLimits, Seconds
from handoff_queue.shared.types.names import NAME_PATTERN
from handoff_queue.shared.types.review import Rubric
from handoff_queue.shared.types.schedule import Missed, Overlap
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.serve.authentication import Access, Caller, choose_tenant
from handoff_queue.supervisor.serve.problem_documents import Problem, build_validation_problem
from handoff_queue.supervisor.workflows import Items, Workflow, parse_workflow, read_named_workflow
from handoff_queue.supervisor.workflows.expansion import MAX_STEPS
from handoff_queue.supervisor.workflows.template import OWN_NAMES

JSON = "application/json"
FORM = "multipart/form-data"
FORMS = (FORM, "application/x-www-form-urlencoded")
"""Media types of forms."""
REQUEST_FIELD = "request"
"""The field of a form that holds the JSON. Every other part of the form is a document."""
MAX_FIELDS = 20
MAX_VALUES = 200_000
"""Most JSON values of a body. Each wrong value costs about 1,200 bytes of memory for its error."""

Body = TypeVar("Body", bound=BaseModel)


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, hide_input_in_errors=True)


class ItemsBody(_Body):
    """Lines or rows over which steps of the workflow repeat."""

    lines: Annotated[tuple[str, ...], Field(max_length=MAX_STEPS)] = ()
    rows: Annotated[tuple[dict[str, str], ...], Field(max_length=MAX_STEPS)] = ()
    """Objects with the same columns."""


class JobBody(_Body):
    """A job, with the fields of `handoff_queue.Request`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "text": "How does HNSW work?",
                    "documents": {"notes/hnsw.md": "HNSW is a graph of layers. ..."},
                    "limits": {"max_microusd": 500_000, "max_seconds": 900},
                }
            ]
        }
    )

    text: str
    """The request in plain words."""
    documents: dict[str, str] = {}
    """Texts by name, such as `notes/a.md`. Send other files as parts of a form."""
    strict_documents: bool = True
    """False: leave out a document that cannot be read. The response then names it."""
    limits: JobLimits | None = None
    """The budget of the whole job."""
    model: str | None = None
    """The model of every agent of this job."""
    answer_schema: dict[str, JsonValue] | None = None
    """A JSON Schema that the answer must match."""
    specialists: tuple[str, ...] = ()
    """The only specialists that the job may use. Empty: all."""
    tenant: str | None = None
    """The owner of the job. Default: the tenant of the token, or `default`."""
    priority: Priority | None = None
    deadline_s: Seconds | None = None
    """Seconds from submission to answer, with the priority `batch`. While there is time, most calls
    go through batches of the provider at half price."""
    idempotency_key: str | None = None
    """The key of the header Idempotency-Key, which may be given here instead."""
    mode: Mode | None = None
    workflow: str | dict[str, JsonValue] | None = None
    """The name of a built-in workflow, or the content of a workflow file as YAML or JSON."""
    items: ItemsBody | None = None
    gates: Gates | None = None
    """Checks that the answer must pass."""
    facts: FactTable | None = None
    """Known facts that the claims of the answer are compared with."""
    rubric: Rubric | None = None
    """Criteria of the assessor."""
    is_reviewed: bool = True
    """False: no assessor reviews the results of a team, an adaptive job or a workflow."""
    after: str | None = None
    """An ended job that this job continues."""
    is_quoted: bool = False
    webhook_url: str | None = None
    """This URL gets a signed POST when the job has ended or waits for an approval."""
    on_end: dict[str, JsonValue] | None = None
    """A task of the host's Celery app, which is sent at the end: {task, args, kwargs, options}."""
    approvals: Approvals | None = None
    """Subjects that a person approves before the job continues."""
    shares_runs: bool = True
    """False: no handoff of the job waits for an equal handoff and copies its result."""


class AnswerBody(_Body):
    """An answer to the open question of a job."""

    note: str | None = None
    plan: JsonValue = None
    """A plan that replaces the plan of the job, in the form of `GET /v1/jobs/{job_id}/plan`."""
    steps: tuple[str, ...] = ()
    """Only these steps."""
    rows: tuple[str, ...] = ()
    """Only the copies with these keys of a step with `for_each`."""
    question: Annotated[int, Field(ge=1)] | None = None
    """Only this question: the id of the event `approval_asked`. Send it, so that a repeated request
    answers no later question. An approval of a tool call needs it."""


class ApproveBody(AnswerBody):
    """An approval of the open question of a job."""

    arguments: dict[str, JsonValue] | None = None
    """Arguments that replace those of the tool call in question."""


class MessageBody(_Body):
    """A message to the agents of a job."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"text": "Leave out prices before 2020.", "step": "research"}]
        }
    )

    text: str
    step: str | None = None
    """Only for the agents of this step. Null: for all agents."""
    idempotency_key: str | None = None
    """Requests with the same key and the same content are one message."""


class RetryBody(_Body):
    """The continuation of a job."""

    from_step: str | None = None
    """Repeat this step and all steps that depend on it."""
    limits: NewLimits | None = None
    """New, higher limits of the job."""
    idempotency_key: str | None = None
    """Requests with the same key and the same content are one retry."""


class PauseBody(_Body):
    """The pause of an agent."""

    reason: str = ""
    """One line, which waiting jobs show."""


class ScheduleBody(_Body):
    """A schedule, which starts a job at the times of a cron expression."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "news",
                    "cron": "0 9 * * mon-fri",
                    "timezone": "Europe/Berlin",
                    "job": {"text": "What is new about HNSW?"},
                }
            ]
        }
    )

    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    cron: str
    """Minute, hour, day, month and weekday, or a name such as `@daily`."""
    timezone: str = "UTC"
    overlap: Overlap = Overlap.SKIP
    """What happens at a slot while an earlier job runs."""
    missed: Missed = Missed.LAST
    """Slots to make up for if no supervisor ran."""
    max_microusd_per_month: Annotated[int, Field(ge=1)] | None = None
    """Slots are skipped after the jobs of a calendar month have spent this amount."""
    follows_last: bool = False
    """True: each job continues the last job of the schedule."""
    job: JobBody
    """The job, without `after` and `idempotency_key`."""


BODIES: tuple[type[BaseModel], ...] = (
    JobBody,
    AnswerBody,
    ApproveBody,
    MessageBody,
    RetryBody,
    PauseBody,
    ScheduleBody,
)
"""All bodies, for the OpenAPI document."""


def describe_body(
    kind: type[BaseModel], *, is_form: bool = False, is_required: bool = False
) -> Any:
    """Return the part of an OpenAPI operation that describes its body."""
    schema = {"$ref": f"#/components/schemas/{kind.__name__}"}
    content: dict[str, Any] = {JSON: {"schema": schema}}
    if is_form:
        content[FORM] = {
            "schema": {
                "type": "object",
                "required": [REQUEST_FIELD],
                "properties": {
                    REQUEST_FIELD: schema,
                    "documents": {
                        "type": "array",
                        "items": {"type": "string", "format": "binary"},
                    },
                },
            },
            "encoding": {REQUEST_FIELD: {"contentType": JSON}},
        }
    return {"requestBody": {"content": content, "required": is_required}}


def _get_media_type(http: HttpRequest) -> str:
    return http.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_body(
    http: HttpRequest, access: Access, kind: type[Body], media_types: str = JSON
) -> Body:
    """Return the JSON body of a request. An empty body has the defaults of all fields.

    Args:
        media_types: the media types that the resource takes, for the words of an error.

    Raises:
        Problem: the body is not JSON, or a field is not valid.
    """
    _check_encoding(http)
    wrong_type = Problem(415, f"the body must be {media_types}")
    # The check against forged requests may have read a form. So refuse a form before the body.
    if _get_media_type(http) in FORMS and http.headers.get("content-length") != "0":
        raise wrong_type
    content = await http.body()
    if content and _get_media_type(http) != JSON:
        raise wrong_type
    return await access.in_turn(parse_body, content or b"{}", kind)


def _check_encoding(http: HttpRequest) -> None:
    """Check that a body is not compressed.

    Raises:
        Problem: the header Content-Encoding names a compression.
    """
    encoding = http.headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise Problem(
            415, f"the body has the Content-Encoding {encoding!r:.40}: send it uncompressed"
        )


def build_too_many_values_problem() -> Problem:
    """Return the problem of a body with more than `MAX_VALUES` values."""
    return Problem(
        413,
        f"the body has more than {MAX_VALUES:,} values: send fewer values, or several jobs",
        headers={"Connection": "close"},
    )


def parse_body(content: bytes, kind: type[Body]) -> Body:
    """Return the body in JSON text.

    Raises:
        Problem, UserError: a field is not valid, there are too many values, or a name is repeated.
    """
    if has_more_values(content, MAX_VALUES):
        raise build_too_many_values_problem()
    try:
        body = kind.model_validate_json(content)
    except ValidationError as error:
        raise build_validation_problem(error, kind) from error
    refuse_repeats(content.decode())
    return body


async def read_job_body(http: HttpRequest, access: Access) -> tuple[JobBody, dict[str, bytes]]:
    """Return the job of a request, and its documents by name.

    Raises:
        Problem: the body is neither JSON nor a form, or a field is not valid.
    """
    if _get_media_type(http) == FORM:
        _check_encoding(http)
        return await _read_job_form(http, access)
    body = await read_body(http, access, JobBody, f"{JSON} or {FORM}")
    return body, decode_documents(body)


def decode_documents(body: JobBody) -> dict[str, bytes]:
    """Return the documents in the JSON of a job, by name."""
    return {name: text.encode() for name, text in body.documents.items()}


async def _read_job_form(http: HttpRequest, access: Access) -> tuple[JobBody, dict[str, bytes]]:
    """Return the job of a form with several parts, and its documents. Raises as `read_job_body`."""
    async with http.form(
        max_files=access.settings.max_documents + 1,
        max_fields=MAX_FIELDS,
        max_part_size=access.settings.serve_max_body_bytes,
    ) as form:
        parts = form.multi_items()
        requests = [part for name, part in parts if name == REQUEST_FIELD]
        if len(requests) != 1:
            raise Problem(422, f"a form has the field {REQUEST_FIELD!r} once: the job as JSON")
        body = await access.in_turn(parse_body, await _get_bytes(requests[0]), JobBody)
        documents = decode_documents(body)
        for name, part in parts:
            if name == REQUEST_FIELD:
                continue
            if not isinstance(part, UploadFile) or not part.filename:
                raise Problem(422, f"the part {name!r:.80} is not a document: give it a file name")
            if part.filename in documents:
                raise Problem(422, f"two documents are called {part.filename!r:.80}: rename one")
            documents[part.filename] = await _get_bytes(part)
    return body, documents


async def _get_bytes(part: UploadFile | str) -> bytes:
    if isinstance(part, str):
        return part.encode()
    return await part.read()


def build_request(
    body: JobBody,
    documents: Mapping[str, bytes],
    caller: Caller,
    settings: Settings,
    header_key: str | None,
) -> Request:
    """Return the request of a body. The tenant of the caller's token is the tenant of the job.

    Args:
        header_key: value of the header Idempotency-Key.

    Raises:
        UserError: a field cannot be used.
        Problem: the body names another tenant than the token, the header and the body have
            different keys, or the caller may not choose these approvals.
    """
    key = choose_key(body.idempotency_key, header_key)
    tenant = choose_tenant(caller, body.tenant)
    _check_approvals(body.approvals, caller)
    after = None
    if body.after is not None:
        after = JobId(body.after)
    return Request(
        text=body.text,
        documents=documents or None,
        strict_documents=body.strict_documents,
        limits=_build_limits(body, settings),
        model=body.model,
        answer_schema=body.answer_schema,
        specialists=body.specialists,
        tenant=DEFAULT_TENANT if tenant is None else tenant,
        priority=body.priority,
        deadline_s=body.deadline_s,
        idempotency_key=key,
        mode=body.mode,
        workflow=_build_workflow(body.workflow),
        items=_build_items(body.items),
        gates=body.gates,
        facts=body.facts,
        rubric=body.rubric,
        is_reviewed=body.is_reviewed,
        after=after,
        is_quoted=body.is_quoted,
        webhook_url=body.webhook_url,
        on_end=body.on_end,
        approvals=body.approvals,
        shares_runs=body.shares_runs,
    )


def _check_approvals(approvals: Approvals | None, caller: Caller) -> None:
    """Check that a caller who may not approve a call of a tool cannot let time approve it.

    Raises:
        Problem: the caller may not choose these approvals.
    """
    if approvals is None or caller.level.includes(AccessLevel.OPERATE):
        return
    if ApprovalOf.TOOLS in approvals.what and approvals.on_timeout is OnTimeout.GO_ON:
        raise Problem(
            403,
            f"{caller.name} has the access level {caller.level}: approvals of tools with on_timeout"
            " go-on need operate, because calls run without a person: use stop or remind",
        )


def choose_key(key: str | None, header_key: str | None) -> str | None:
    """Return the idempotency key of a body or of its header, or None.

    Raises:
        Problem: the header and the body have different keys.
    """
    if header_key is None:
        return key
    if key not in (None, header_key):
        raise Problem(400, "the header Idempotency-Key and idempotency_key differ: send one")
    return header_key


def _build_limits(body: JobBody, settings: Settings) -> JobLimits:
    limits = body.limits or JobLimits()
    if "max_depth" in limits.model_fields_set:
        return limits
    return limits.model_copy(update={"max_depth": settings.max_depth})


def _build_workflow(value: str | Mapping[str, JsonValue] | None) -> Workflow | None:
    """Return the workflow that a body names or holds. No path of the server is read."""
    if value is None:
        return None
    if isinstance(value, str):
        if re.fullmatch(NAME_PATTERN, value):
            advice = "name a known workflow, or give the content of a workflow file"
            return read_named_workflow(value, otherwise=advice)
        return parse_workflow(value)
    return parse_workflow(json.dumps(value, ensure_ascii=False))


def _build_items(items: ItemsBody | None) -> Items:
    """Return the items of a body.

    Raises:
        UserError: a row has other columns than the first row, or a column has a reserved name.
    """
    if items is None:
        return Items()
    columns = set(items.rows[0]) if items.rows else set()
    for number, row in enumerate(items.rows, start=1):
        if set(row) != columns:
            raise UserError(f"items: row {number} has other columns than row 1: write all columns")
    reserved_columns = columns & OWN_NAMES
    if reserved_columns:
        raise UserError(
            f"items: rename column {min(reserved_columns)!r}: this name stands for something else"
            " in every workflow"
        )
    return Items(lines=items.lines, rows=items.rows)
