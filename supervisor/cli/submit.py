"""`handoff submit`: enqueue one job, or a file of jobs, and print the ids."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from handoff_queue.shared.settings.settings import load_settings
from handoff_queue.shared.text.times import parse_whole_seconds
from handoff_queue.shared.types.errors import Conflict, StoreUnavailable, UserError
from handoff_queue.shared.types.job_options import MAX_WAIT_S, Mode, OnTimeout, Priority
from handoff_queue.shared.types.json_values import refuse_repeats
from handoff_queue.shared.types.limits import (
    Count,
    Depth,
    Dollars,
    OnLimit,
    Rounds,
    Seconds,
    Tokens,
)
from handoff_queue.shared.types.message import describe_problems
from handoff_queue.shared.types.names import SUPERVISOR_QUEUE
from handoff_queue.supervisor.cli.connection import connect_to_broker
from handoff_queue.supervisor.cli.display.terminal import (
    BrokenPipe,
    OutputFailed,
    print_message,
    write_line,
)
from handoff_queue.supervisor.cli.errors import OK
from handoff_queue.supervisor.cli.options import ADVANCED, IdempotencyKey, RequestText
from handoff_queue.supervisor.cli.request_options import (
    JobOptions,
    RequestOptions,
    build_request,
    build_rubric,
    read_request_text,
    read_text,
    with_job_options,
)
from handoff_queue.supervisor.gates.gates_file import build_gates

if TYPE_CHECKING:
    from handoff_queue.supervisor.client.client import Client
    from handoff_queue.supervisor.client.request import Request

MAX_FILE_BYTES = 50_000_000
"""Most bytes of a file of jobs: 10,000 jobs with a page of text each."""


def _parse_duration(value: object) -> object:
    """Return the seconds of a text, and any other value as it is.

    Raises:
        InvalidDuration: the text is not a duration of whole seconds.
    """
    if isinstance(value, str):
        return parse_whole_seconds(value)
    return value


_DURATION = BeforeValidator(_parse_duration)
"""A time in a line of `--file`: a number of seconds, or a text such as "10m"."""


def _check_not_blank(text: str) -> str:
    """Return the text. Refuse an empty one: `"docs": ""` would upload the current folder."""
    if not text.strip():
        raise ValueError("it is empty: give it a value, or leave it out")
    return text


Text = Annotated[str, AfterValidator(_check_not_blank)]
"""A text that is not empty."""


class SubmissionLine(BaseModel):
    """One line of `--file`. A missing field has the value of the command line."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    request: str
    docs: Text | None = None
    strict_docs: bool | None = None
    model: Text | None = None
    max_turns_per_handoff: Count | None = None
    max_turns: Count | None = None
    max_usd: Dollars | None = None
    max_tokens: Tokens | None = None
    max_rounds: Rounds | None = None
    max_depth: Depth | None = None
    timeout: Annotated[Seconds | None, _DURATION] = None
    answer_schema: dict[str, Any] | None = None
    tenant: Text | None = None
    priority: Annotated[Priority | None, Field(strict=False)] = None
    deadline: Annotated[Seconds | None, _DURATION] = None
    idempotency_key: Text | None = None
    webhook: Text | None = None
    on_limit: Annotated[OnLimit | None, Field(strict=False)] = None
    mode: Annotated[Mode | None, Field(strict=False)] = None
    workflow: Text | None = None
    items: Text | None = None
    gates: dict[str, Any] | None = None
    rubric: dict[str, Any] | None = None
    no_review: bool | None = None
    after: Text | None = None
    approve: list[Literal["plan", "research", "answer"]] | None = None
    approve_above_usd: Dollars | None = None
    approve_timeout: Annotated[int | None, _DURATION] = Field(default=None, ge=1, le=MAX_WAIT_S)
    on_timeout: Annotated[OnTimeout | None, Field(strict=False)] = None


OTHER_NAMES = {
    "text": "request",
    "documents": "docs",
    "strict_documents": "strict_docs",
    "limits": "its fields in the line itself, such as max_turns or max_usd",
    "max_microusd": "max_usd",
    "max_seconds": "timeout",
    "deadline_s": "deadline",
    "webhook_url": "webhook",
    "facts": "gates with facts",
    "is_reviewed": "no_review",
    "approvals": "approve",
}
"""What a line has in place of a field of `Request` or of its limits."""


@with_job_options
def submit(
    job: JobOptions,
    request: RequestText = None,
    file: Annotated[
        Path | None,
        typer.Option(metavar="JSONL", help="Submit many jobs: one JSON object per line."),
    ] = None,
    idempotency_key: IdempotencyKey = None,
    webhook: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The URL that gets a signed POST when the job ends.",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
) -> int:
    """Enqueue a job and print its id.

      handoff submit "Summarise the risks" --docs contracts

      handoff submit --file jobs.jsonl

    Each line of the file is a JSON object, such as {"request": "...", "docs": "contracts"}. If
    a line is wrong, the command names the line and submits nothing.
    """
    from handoff_queue.supervisor.cli.connection import require_keys
    from handoff_queue.supervisor.client.request import get_named_specialists

    request_options = replace(
        job.build_request_options(), idempotency_key=idempotency_key, webhook=webhook
    )
    request_options = _with_request(request_options, request, file)
    jobs = connect_to_broker(", or use `handoff run`")
    if file is None:
        requests = [build_request(request_options, jobs)]
    else:
        requests = _read_requests(file, request_options, jobs)
    require_keys(jobs)
    _enqueue(jobs, requests)
    specialists: set[str] = set()
    for submitted in requests:
        specialists |= get_named_specialists(submitted)
    _print_missing_processes(jobs, specialists)
    return OK


def _print_missing_processes(jobs: Client, specialists: Set[str]) -> None:
    """Print a line if there is no supervisor, no worker, or no worker for a named specialist.

    Args:
        specialists: specialists of the workflows.
    """
    from handoff_queue.supervisor.client.waiting_reasons import find_intended_name

    served = jobs.store.presence.read_presence().queues
    unserved = sorted(specialists - served)
    if SUPERVISOR_QUEUE not in served:
        print_message(
            "no supervisor takes jobs from this broker yet: the jobs wait (`handoff up`, or"
            " `handoff supervisor`)"
        )
    if not served - {SUPERVISOR_QUEUE}:
        print_message(
            "no worker serves any specialist on this broker yet: the jobs wait (`handoff up`, or"
            " `handoff worker --all`)"
        )
    elif unserved:
        intended_name = find_intended_name(unserved[0], served)
        question = f": did you mean {intended_name}?" if intended_name else ""
        print_message(
            f"no worker serves {', '.join(unserved)} now: these steps wait (`handoff specialists`"
            f" lists the served specialists){question}"
        )


def _with_request(
    request_options: RequestOptions, request: str | None, file: Path | None
) -> RequestOptions:
    """Return the options with the text of the request, if there is no file. Needs no Redis.

    Raises:
        UserError: there is no request and no file, or there are both; or the text cannot be used.
    """
    if (request is None) == (file is None):
        raise UserError("give either a request or --file jobs.jsonl")
    if file is None:
        return replace(request_options, request=read_request_text(request, load_settings()))
    if request_options.idempotency_key is not None:
        raise UserError(
            "--idempotency-key is for one job: set idempotency_key in each line of the file"
        )
    return request_options


def _enqueue(jobs: Client, requests: list[Request]) -> None:
    """Submit the jobs and print the id of each.

    Raises:
        StoreUnavailable: Redis is away. The message has the number of enqueued jobs.
        OutputFailed: an id cannot be written. All jobs are enqueued first.
    """
    if len(requests) == 1:
        write_line(jobs.submit(requests[0]))
        return
    enqueued_count = 0
    failure: OutputFailed | None = None
    try:
        for job_id in jobs.submit_each(requests):
            enqueued_count += 1
            try:
                write_line(job_id)
            except BrokenPipe:  # `handoff submit --file jobs.jsonl | head -1` enqueues all jobs
                pass
            except OutputFailed as error:  # the other jobs are enqueued before the command fails
                failure = error
    except StoreUnavailable as error:
        if enqueued_count == 0:
            raise
        raise StoreUnavailable(
            f"{error}; the first {enqueued_count} of {len(requests)} jobs are enqueued"
        ) from error
    if failure is not None:
        raise OutputFailed(
            f"{failure}; all {enqueued_count} jobs are enqueued:"
            f" `handoff list -n {enqueued_count}` shows their ids"
        )


def _read_requests(file: Path, request_options: RequestOptions, jobs: Client) -> list[Request]:
    """Return the requests of all lines. Each line is checked before the first job is
    submitted.

    Raises:
        UserError: a line is not valid. The message names it.
    """
    lines = read_text(file, MAX_FILE_BYTES, "split it, and submit each part").split("\n")
    requests: dict[int, Request] = {}
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            request = build_request(parse_line_options(text, request_options), jobs)
            if request.after is not None:
                jobs.info(request.after)
            requests[number] = request
        except UserError as error:
            raise UserError(f"{file}:{number}: {error.line}; nothing was submitted") from error
    if not requests:
        raise UserError(f"{file} holds no job: write one JSON object per line")
    _check_keys(file, requests, jobs)
    return list(requests.values())


def _check_keys(file: Path, requests: dict[int, Request], jobs: Client) -> None:
    """Check that no idempotency key has two requests.

    Args:
        requests: the requests, by the number of their line.

    Raises:
        Conflict: a key has two requests. The message names the later line.
    """
    clash = jobs.first_clash(list(requests.values()))
    if clash is None:
        return
    lines = list(requests)
    other = f"job {clash.job_id}"
    if clash.earlier is not None:
        other = f"line {lines[clash.earlier]}"
    raise Conflict(
        f"{file}:{lines[clash.place]}: the idempotency key was used for another request by"
        f" {other}: use a new key; nothing was submitted"
    )


def parse_line_options(text: str, request_options: RequestOptions) -> RequestOptions:
    """Return the options of a line of `--file`.

    Args:
        request_options: options of the command line, for missing fields.

    Raises:
        UserError: the line is not JSON, or a field is not valid.
    """
    refuse_repeats(text)
    try:
        line = SubmissionLine.model_validate_json(text)
    except ValidationError as error:
        raise UserError(
            describe_problems(
                error, kind=SubmissionLine, shows_values=True, other_names=OTHER_NAMES
            )
        ) from error
    options: dict[str, Any] = {}
    for name, value in line.model_dump().items():
        if value is not None:
            options[name] = value
    if line.gates is not None:
        options["gates"] = build_gates(line.gates, lambda _: "gates", Path())
    if line.rubric is not None:
        options["rubric"] = build_rubric(line.rubric)
    for name in options.keys() & {"docs", "items"}:
        options[name] = Path(options[name])
    for name in options.keys() & {"timeout", "deadline", "approve_timeout"}:
        options[f"{name}_s"] = options.pop(name)
    if "approve" in options:
        options["approve"] = tuple(options["approve"])
    return replace(request_options, **options)
