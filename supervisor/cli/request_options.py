"""Options of one job, shared by `run`, `submit` and `quote`, and the request that they make."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from pydantic import ValidationError

from handoff_queue.shared.settings.settings import OFFLINE_MODEL, Settings, load_settings
from handoff_queue.shared.text.unicode_text import has_lone_surrogate
from handoff_queue.shared.types.budget_measures import MEASURES
from handoff_queue.shared.types.errors import MalformedMessage, MissingCredentials, UserError
from handoff_queue.shared.types.events import DEFAULT_TENANT
from handoff_queue.shared.types.gates import GatesFrom
from handoff_queue.shared.types.ids import is_job_id
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals, Mode, OnTimeout, Priority
from handoff_queue.shared.types.json_values import refuse_repeats
from handoff_queue.shared.types.limits import JobLimits, NewLimits, OnLimit
from handoff_queue.shared.types.message import Message, iterate_problems
from handoff_queue.shared.types.review import DEFAULT_RUBRIC, Rubric
from handoff_queue.supervisor.cli.display.terminal import print_progress
from handoff_queue.supervisor.cli.options import (
    After,
    AnswerSchema,
    Approve,
    ApproveAboveUsd,
    ApproveTimeout,
    Deadline,
    Docs,
    GatesOption,
    ItemsOption,
    MaxDepth,
    MaxRounds,
    MaxTokens,
    MaxTurns,
    MaxTurnsPerHandoff,
    MaxUsd,
    Model,
    ModeOption,
    NoReview,
    OnLimitOption,
    OnTimeoutOption,
    PriorityOption,
    RubricOption,
    StrictDocs,
    TenantOption,
    Timeout,
    WorkflowOption,
    convert_amount,
)
from handoff_queue.supervisor.client.job_lookup import find_job
from handoff_queue.supervisor.gates.gates_file import GateSet, read_fields, read_gates
from handoff_queue.supervisor.text.plain_yaml import read_bounded

if TYPE_CHECKING:
    from handoff_queue.shared.documents.folder import FolderReading
    from handoff_queue.shared.types.ids import JobId
    from handoff_queue.supervisor.client.client import Client
    from handoff_queue.supervisor.client.request import Request


def read_gates_option(file: Path | None) -> GateSet | None:
    """Return the gates of a YAML file.

    Raises:
        UserError: the file is missing, too large or not plain YAML; no answer could pass the gates;
            or the facts cannot be read.
    """
    if file is None:
        return None
    return read_gates(file)


def read_rubric(file: Path | None) -> Rubric | None:
    """Return the rubric of a YAML file.

    Raises:
        UserError: the file is missing, too large or not plain YAML, or it has no criteria.
    """
    if file is None:
        return None
    fields = read_fields(file, DEFAULT_RUBRIC.names)
    try:
        return build_rubric(fields.values)
    except UserError as error:
        raise UserError(f"{file}: {error}") from error


def build_rubric(fields: dict[str, Any]) -> Rubric:
    """Return the rubric with these fields.

    Raises:
        UserError: a criterion cannot be used. The message names it.
    """
    try:
        return Rubric.of_fields(fields)
    except MalformedMessage as error:
        raise UserError(str(error).removeprefix("Rubric: ")) from error


MAX_SCHEMA_BYTES = 200_000
"""Most bytes of an answer schema."""


@dataclass(frozen=True)
class RequestOptions:
    """Options of one job from the command line. None: not given."""

    request: str
    docs: Path | None = None
    strict_docs: bool = False
    model: str | None = None
    max_turns_per_handoff: int | None = None
    max_turns: int | None = None
    max_usd: float | None = None
    max_tokens: int | None = None
    max_rounds: int | None = None
    max_depth: int | None = None
    timeout_s: int | None = None
    deadline_s: int | None = None
    answer_schema: Mapping[str, Any] | None = None
    tenant: str = DEFAULT_TENANT
    priority: Priority | None = None
    idempotency_key: str | None = None
    webhook: str | None = None
    on_limit: OnLimit | None = None
    mode: Mode | None = None
    workflow: str | None = None
    items: Path | None = None
    gates: GateSet | None = None
    rubric: Rubric | None = None
    no_review: bool = False
    after: str | None = None
    approve: tuple[str, ...] = ()
    approve_above_usd: float | None = None
    approve_timeout_s: int | None = None
    on_timeout: OnTimeout | None = None

    @property
    def needs_approval(self) -> bool:
        return bool(self.approve) or self.approve_above_usd is not None


def read_request_text(argument: str | None, settings: Settings) -> str:
    """Return the request. `-` reads it from stdin, up to the longest allowed request.

    Raises:
        UserError: the request is missing, empty, not text, too long, or the id of a job.
    """
    limit = settings.max_request_chars
    if argument is None:
        raise UserError("the REQUEST is missing: write a question or a task in plain words")
    if argument == "-":
        try:
            text = sys.stdin.read(limit + 1)
        except UnicodeDecodeError as error:
            raise UserError(
                "the request on stdin is not UTF-8 text: convert it to UTF-8"
            ) from error
    else:
        text = argument
    if not text.strip():
        raise UserError("the request is empty: write a question or a task in plain words")
    if is_job_id(text.strip()):
        raise UserError(
            f"the request is the id of a job, {text.strip()}: write a question or a task; `handoff"
            f" show {text.strip()}` shows the job"
        )
    if len(text) > limit:
        raise UserError(
            f"the request has more than {limit:,} characters: put long texts into --docs"
        )
    if has_lone_surrogate(text):  # bytes on the command line that are not text
        raise UserError("the request is not UTF-8 text: convert it to UTF-8")
    return text


def read_text(file: Path, limit: int, fix: str) -> str:
    """Return the text of a UTF-8 file, without a byte order mark.

    Args:
        limit: most bytes.
        fix: advice for a file with more bytes.

    Raises:
        UserError: the file cannot be read, is too large, or is not UTF-8 text.
    """
    try:
        return read_bounded(file, limit, fix).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not UTF-8 text: convert it") from error


def read_schema(file: Path | None) -> dict[str, Any] | None:
    """Return the answer schema of a file.

    Raises:
        UserError: the file is missing, too large, or not a JSON object.
    """
    if file is None:
        return None
    text = read_text(
        file,
        MAX_SCHEMA_BYTES,
        "each model call pays for the whole schema: shorten it",
    )
    try:
        refuse_repeats(text)
    except UserError as error:
        raise UserError(f"the answer schema {file}: {error}") from error
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"the answer schema {file} is not JSON ({error}): write a JSON Schema, such as"
            ' {"type": "object"}'
        ) from error
    if not isinstance(schema, dict):
        raise UserError(
            f"the answer schema {file} must be a JSON object: write a JSON Schema, such as"
            ' {"type": "object"}'
        )
    return schema


def build_approvals(request_options: RequestOptions) -> Approvals:
    """Return the approvals of the options.

    Raises:
        UserError: an amount or a time is out of bounds.
    """
    subjects = dict.fromkeys(ApprovalOf(text) for text in request_options.approve)
    return _build_within_bounds(
        Approvals,
        what=tuple(subjects),
        above_microusd=convert_amount("--approve-above-usd", request_options.approve_above_usd),
        timeout_s=request_options.approve_timeout_s,
        on_timeout=request_options.on_timeout or OnTimeout.STOP,
    )


_OPTIONS = {
    **{measure.limit: measure.option for measure in MEASURES},
    "max_turns_per_handoff": "--max-turns-per-handoff",
    "max_rounds": "--max-rounds",
    "max_depth": "--max-depth",
    "max_seconds": "--timeout",
    "timeout_s": "--approve-timeout",
}
"""Options by the name of the field that they set."""
_Bounded = TypeVar("_Bounded", bound=Message)


def _build_within_bounds(kind: type[_Bounded], **fields: Any) -> _Bounded:
    """Return a message made of values from the command line.

    Raises:
        UserError: a value is out of bounds. The message names its option.
    """
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        problems: list[str] = []
        for where, problem in iterate_problems(error, shows_values=True):
            problems.append(f"{_OPTIONS.get(where[0], where[0])}: {problem}")
        raise UserError("; ".join(problems)) from error


def build_limits(request_options: RequestOptions, max_depth: int | None = None) -> JobLimits:
    """Return the limits of one job.

    Args:
        max_depth: the depth if the options do not set it.

    Raises:
        UserError: a limit is out of bounds.
    """
    if request_options.max_depth is not None:
        max_depth = request_options.max_depth
    values: dict[str, Any] = {
        "max_turns_per_handoff": request_options.max_turns_per_handoff,
        "max_turns": request_options.max_turns,
        "max_microusd": convert_amount("--max-usd", request_options.max_usd),
        "max_tokens": request_options.max_tokens,
        "max_rounds": request_options.max_rounds,
        "max_depth": max_depth,
        "max_seconds": request_options.timeout_s,
        "on_limit": request_options.on_limit,
    }
    limits: dict[str, Any] = {}
    for name, value in values.items():
        if value is not None:
            limits[name] = value
    return _build_within_bounds(JobLimits, **limits)


def check_times(timeout_s: int | None, deadline_s: int | None) -> None:
    """Check that a job has one time limit.

    Raises:
        UserError: both are given.
    """
    if timeout_s is not None and deadline_s is not None:
        raise UserError("--timeout and --deadline exclude each other: leave one out")


def build_new_limits(
    max_turns: int | None, max_tokens: int | None, max_usd: float | None
) -> NewLimits:
    """Return the new limits for the retry of a job.

    Raises:
        UserError: a limit is out of bounds.
    """
    return _build_within_bounds(
        NewLimits,
        max_turns=max_turns,
        max_tokens=max_tokens,
        max_microusd=convert_amount("--max-usd", max_usd),
    )


def build_request(request_options: RequestOptions, jobs: Client) -> Request:
    """Return the checked request with its documents, as `read_request` does. Check also the job
    before it and the fact-checker, which need Redis.

    Raises:
        UserError: the request cannot be used.
    """
    after = None
    if request_options.after:
        after = find_job(jobs.store, request_options.after)
    request = read_request(request_options, load_settings(), after)
    _check_fact_checker(request, jobs)
    return request


def read_request(
    request_options: RequestOptions, settings: Settings, after: JobId | None = None
) -> Request:
    """Return the checked request with its documents. Print a line for each file that is left
    out.

    The workflow, the items and the documents are read from their files, without Redis.

    Args:
        after: the job before it.

    Raises:
        UserError: the request cannot be used.
    """
    from handoff_queue.supervisor.client.request import Request, check_request
    from handoff_queue.supervisor.client.submission import build_plan, read_documents
    from handoff_queue.supervisor.workflows import Items, read_items, read_workflow

    check_times(request_options.timeout_s, request_options.deadline_s)
    limits = build_limits(request_options, settings.max_depth)
    workflow = None
    if request_options.workflow:
        workflow = read_workflow(request_options.workflow)
    items = Items()
    if request_options.items:
        items = read_items(request_options.items)
    gates = facts = None
    if request_options.gates:
        gates = request_options.gates.gates
        facts = request_options.gates.facts
    request = Request(
        text=request_options.request,
        documents=request_options.docs,
        strict_documents=request_options.strict_docs,
        limits=limits,
        model=request_options.model,
        answer_schema=request_options.answer_schema,
        tenant=request_options.tenant,
        priority=request_options.priority,
        deadline_s=request_options.deadline_s,
        idempotency_key=request_options.idempotency_key,
        webhook_url=request_options.webhook,
        mode=request_options.mode,
        workflow=workflow,
        items=items,
        gates=gates,
        facts=facts,
        rubric=request_options.rubric,
        is_reviewed=not request_options.no_review,
        after=after,
        approvals=build_approvals(request_options),
    )
    check_request(request, settings)
    if request_options.docs is not None:
        reading = read_documents(request, settings)
        print_left_out_files(reading)
        request = replace(request, documents=reading)
    build_plan(request)
    return request


def print_left_out_files(reading: FolderReading) -> None:
    """Print a line for each file that was left out."""
    for left_out in reading.notes:
        print_progress(f"documents: {left_out}")


def _check_fact_checker(request: Request, jobs: Client) -> None:
    """Check that a worker serves the fact-checker of the gates, before anything is submitted.

    `submit` checks it again for each job.
    """
    from handoff_queue.supervisor.client.admission import check_fact_checker
    from handoff_queue.supervisor.client.request import choose_answer_gates

    gating = choose_answer_gates(request, load_settings())
    if gating.gates is None or gating.origin is None:
        return
    try:
        check_fact_checker(jobs.store, gating.gates.fact_checker)
    except UserError as error:
        raise UserError(f"{_GATES_PLACES[gating.origin]}: {error}") from error


_GATES_PLACES = {
    GatesFrom.JOB: "gates (--gates)",
    GatesFrom.WORKFLOW: "gates of the workflow",
    GatesFrom.SETTINGS: "HANDOFF_GATES",
}
"""Place of the gates of a request, for errors."""


def check_model(model: str | None, settings: Settings) -> None:
    """Check that the model can be used, before anything starts on this machine.

    Raises:
        MissingCredentials: the model needs a key, and there is none.
    """
    if model is not None and model != OFFLINE_MODEL and settings.is_offline:
        raise MissingCredentials(
            f"{model} needs a key: set ANTHROPIC_API_KEY, or ANTHROPIC_BASE_URL for a server of"
            " your own (without --model the offline model answers)"
        )


@dataclass(frozen=True)
class JobOptions:
    """The options of one job, in the order of the help."""

    docs: Docs = None
    model: Model = None
    mode: ModeOption = None
    max_usd: MaxUsd = None
    timeout: Timeout = None
    workflow: WorkflowOption = None
    items: ItemsOption = None
    after: After = None
    strict_docs: StrictDocs = False
    gates: GatesOption = None
    rubric: RubricOption = None
    no_review: NoReview = False
    max_rounds: MaxRounds = None
    max_tokens: MaxTokens = None
    max_turns: MaxTurns = None
    max_turns_per_handoff: MaxTurnsPerHandoff = None
    on_limit: OnLimitOption = None
    approve: Approve = field(default_factory=list)
    approve_above_usd: ApproveAboveUsd = None
    approve_timeout: ApproveTimeout = None
    on_timeout: OnTimeoutOption = None
    answer_schema: AnswerSchema = None
    priority: PriorityOption = None
    deadline: Deadline = None
    tenant: TenantOption = DEFAULT_TENANT
    max_depth: MaxDepth = None

    def build_request_options(self) -> RequestOptions:
        """Return the options without the request. Read the files that they name.

        Raises:
            UserError: a file cannot be used.
        """
        values: dict[str, Any] = {}
        for option in fields(self):
            values[option.name] = getattr(self, option.name)
        file_contents = {
            "gates": read_gates_option(self.gates),
            "rubric": read_rubric(self.rubric),
            "answer_schema": read_schema(self.answer_schema),
        }
        times = {
            "timeout_s": values.pop("timeout"),
            "deadline_s": values.pop("deadline"),
            "approve_timeout_s": values.pop("approve_timeout"),
        }
        return RequestOptions(
            "", **{**values, **file_contents, **times, "approve": tuple(self.approve)}
        )


def with_job_options(
    command: Callable[..., int], own_annotations: Mapping[str, Any] | None = None
) -> Callable[..., int]:
    """Replace the parameter `job` of a command by the options of JobOptions.

    Args:
        own_annotations: annotations of options that mean something else in this command, by name.

    Typer reads the options from the signature and the annotations of the returned function.
    """
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name == "job":
            parameters += _build_job_parameters(own_annotations or {})
            continue
        hint = hints[parameter.name]
        parameters.append(parameter.replace(annotation=hint, kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(command)
    def with_options(**values: Any) -> int:
        of_job: dict[str, Any] = {}
        for option in fields(JobOptions):
            of_job[option.name] = values.pop(option.name)
        return command(job=JobOptions(**of_job), **values)

    annotations: dict[str, Any] = {}
    for parameter in parameters:
        annotations[parameter.name] = parameter.annotation
    with_options.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
    with_options.__annotations__ = annotations | {"return": int}
    return with_options


def _build_job_parameters(own_annotations: Mapping[str, Any]) -> list[inspect.Parameter]:
    """Return one keyword parameter for each field of JobOptions, with its default."""
    hints = {**get_type_hints(JobOptions, include_extras=True), **own_annotations}
    parameters: list[inspect.Parameter] = []
    for option in fields(JobOptions):
        default: Any = option.default
        if option.default_factory is not MISSING:
            default = option.default_factory()
        parameters.append(
            inspect.Parameter(
                option.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=hints[option.name],
            )
        )
    return parameters
