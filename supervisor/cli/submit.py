"""`handoff submit`: enqueue one job, or a file of them, and print their ids at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shared.wire.errors import LedgerUnavailable, UserError
from shared.wire.message import problems_of
from supervisor.cli.asking import Asked, request_of, schema_of, text_of
from supervisor.cli.errors import OK, say
from supervisor.cli.jobs import client_of_broker
from supervisor.cli.terminal import write_line

if TYPE_CHECKING:
    from supervisor.client import Client, Request


class Line(BaseModel):
    """One line of `--file`; what it leaves out comes from the command line."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    request: str
    docs: str | None = None
    skip_bad_docs: bool | None = None
    model: str | None = None
    max_turns: int | None = Field(default=None, ge=1)
    max_usd: float | None = None
    max_rounds: int | None = Field(default=None, ge=0, le=10)
    timeout: int | None = Field(default=None, ge=1)
    answer_schema: dict[str, Any] | None = None
    tenant: str | None = None
    idempotency_key: str | None = None
    webhook: str | None = None


def submit(
    request: Annotated[str | None, typer.Argument(help="What you want, in plain words; `-` reads it from stdin.")] = None,
    file: Annotated[Path | None, typer.Option(help="Many jobs: one JSON object a line.")] = None,
    docs: Annotated[Path | None, typer.Option(help="A folder (or file) to work from.")] = None,
    model: Annotated[str | None, typer.Option(help="The model of every agent of this job.")] = None,
    max_turns: Annotated[int | None, typer.Option(min=1, help="The most turns of one handoff.")] = None,
    max_usd: Annotated[float | None, typer.Option(help="The most that the job may cost.")] = None,
    max_rounds: Annotated[int | None, typer.Option(min=0, max=10, help="How often a review may send work back.")] = None,
    timeout: Annotated[int | None, typer.Option(min=1, help="Seconds until the job ends with what it has.")] = None,
    answer_schema: Annotated[Path | None, typer.Option(help="A JSON Schema that the answer must match.")] = None,
    skip_bad_docs: Annotated[bool, typer.Option("--skip-bad-docs", help="Leave out documents that cannot be read.")] = False,
    idempotency_key: Annotated[str | None, typer.Option(help="The same key gives the same job.")] = None,
    tenant: Annotated[str, typer.Option(help="Whose job it is; keys are told apart by tenant.")] = "default",
    webhook: Annotated[str | None, typer.Option(metavar="URL", help="Gets a signed POST when the job has ended.")] = None,
) -> int:
    """Enqueue a job and print its id at once.

      handoff submit "Summarise the risks" --docs contracts --idempotency-key contracts-2026-11

      handoff submit --file jobs.jsonl      {"request": "...", "docs": "dir", "model": "...", "idempotency_key": "..."} a line

    A line of the file that is wrong is named, and then nothing is submitted.
    """
    if (request is None) == (file is None):
        raise UserError("give either a request or --file jobs.jsonl")
    jobs = client_of_broker()
    from shared.config import load_settings

    settings = load_settings()
    asked = Asked(
        request="",
        docs=docs,
        skip_bad_docs=skip_bad_docs,
        model=model,
        max_turns=max_turns,
        max_usd=max_usd,
        max_rounds=max_rounds,
        timeout_s=timeout,
        answer_schema=schema_of(answer_schema),
        tenant=tenant,
        idempotency_key=idempotency_key,
        webhook=webhook,
    )
    if file is None:
        requests = [request_of(replace(asked, request=text_of(request, settings)), jobs)]
    elif idempotency_key is not None:
        raise UserError("--idempotency-key is for one job: give each line of the file an idempotency_key of its own")
    else:
        requests = _requests_of(file, asked, jobs)
    _enqueue(jobs, requests)
    if not jobs.ledger.roles.served():
        say("no worker serves any specialist on this broker yet: the jobs wait (`handoff up`, or `handoff worker --all`)")
    return OK


def _enqueue(jobs: Client, requests: list[Request]) -> None:
    for number, request in enumerate(requests):
        try:
            write_line(jobs.submit(request))
        except LedgerUnavailable as error:
            if number == 0:
                raise
            raise LedgerUnavailable(f"{error} The first {number} of {len(requests)} jobs are enqueued") from error


def _requests_of(file: Path, asked: Asked, jobs: Client) -> list[Request]:
    """All lines, each checked before the first is submitted.

    Raises:
        UserError: names the line.
    """
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UserError(f"{file} cannot be read: {reason}") from error
    found = []
    for number, text in enumerate(lines, start=1):
        if text.strip():
            try:
                found.append(request_of(_asked_in(text, asked), jobs))
            except UserError as error:
                raise UserError(f"{file}:{number}: {error}; nothing was submitted") from error
    if not found:
        raise UserError(f"{file} holds no job: write one JSON object a line")
    return found


def _asked_in(text: str, asked: Asked) -> Asked:
    try:
        line = Line.model_validate_json(text)
    except ValidationError as error:
        raise UserError(problems_of(error)) from error
    given: dict[str, Any] = {name: value for name, value in line.model_dump().items() if value is not None}
    if "docs" in given:
        given["docs"] = Path(given["docs"])
    if "timeout" in given:
        given["timeout_s"] = given.pop("timeout")
    return replace(asked, **given)
