"""From what was typed to a `Request`: its text, its limits, the form of its answer."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import ValidationError

from shared.config import OFFLINE_MODEL, Settings
from shared.wire.approval import OnTimeout
from shared.wire.errors import MissingCredentials, UserError
from shared.wire.events import DEFAULT_TENANT
from shared.wire.gates import Gates
from shared.wire.limits import JobLimits, OnLimit
from shared.wire.message import problems_of
from shared.wire.mode import Mode
from shared.wire.usage import microusd
from shared.yaml_loading import PlainLoader
from supervisor.cli.terminal import note

MOST_GATES_BYTES = 50_000
"""Of a file of gates: some dozens of lines are usual."""

if TYPE_CHECKING:
    from supervisor.client import Client, Request


@dataclass(frozen=True)
class Asked:
    """What a user typed about one job. None: not said."""

    request: str
    docs: Path | None = None
    skip_bad_docs: bool = False
    model: str | None = None
    max_turns: int | None = None
    max_usd: float | None = None
    max_rounds: int | None = None
    timeout_s: int | None = None
    answer_schema: Mapping[str, Any] | None = None
    tenant: str = DEFAULT_TENANT
    idempotency_key: str | None = None
    webhook: str | None = None
    on_limit: OnLimit | None = None
    mode: Mode | None = None
    workflow: str | None = None
    items: Path | None = None
    gates: Gates | None = None
    approve: tuple[str, ...] = ()
    approve_above_usd: float | None = None
    approve_timeout_s: int | None = None
    on_timeout: OnTimeout | None = None

    def to_be_approved(self, what: Sequence[str], above_usd: float | None, timeout_s: int | None, on_timeout: OnTimeout | None) -> Asked:
        return replace(self, approve=tuple(what), approve_above_usd=above_usd, approve_timeout_s=timeout_s, on_timeout=on_timeout)

    @property
    def is_to_be_approved(self) -> bool:
        return bool(self.approve) or self.approve_above_usd is not None


def text_of(argument: str | None, settings: Settings) -> str:
    """The request itself; `-` reads it from stdin, and never more of it than may be.

    Raises:
        UserError: empty, not text, or too long.
    """
    most = settings.max_request_chars
    if argument == "-":
        try:
            text = sys.stdin.read(most + 1)
        except UnicodeDecodeError as error:
            raise UserError("the request on stdin is not UTF-8 text") from error
    else:
        text = argument or ""
    if not text.strip():
        raise UserError("the request is empty: say in plain words what you want")
    if len(text) > most:
        raise UserError(f"the request has more than {most:,} characters: put long texts into --docs")
    if any("\ud800" <= character <= "\udfff" for character in text):  # bytes on the command line that are no text
        raise UserError("the request is not UTF-8 text")
    return text


def schema_of(file: Path | None) -> dict[str, Any] | None:
    """Raises: UserError: not there, or no JSON object."""
    if file is None:
        return None
    try:
        schema = json.loads(file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UserError(f"the answer schema {file} cannot be read: {reason}") from error
    except ValueError as error:
        raise UserError(f"the answer schema {file} is not JSON: {error}") from error
    if not isinstance(schema, dict):
        raise UserError(f"the answer schema {file} must be a JSON object (a JSON Schema)")
    return schema


def gates_of(file: Path | None) -> Gates | None:
    """Raises: UserError: not there, too large, no plain YAML, or gates that nothing could pass."""
    if file is None:
        return None
    from supervisor.workflows.bounded_file import bounded_bytes

    data = bounded_bytes(file, MOST_GATES_BYTES, "an answer is held against every line of it: keep what matters")
    try:
        said = yaml.load(data, PlainLoader)  # noqa: S506 (a safe loader, and a stricter one)
    except yaml.YAMLError as error:
        raise UserError(f"the gates {file} are not YAML: {' '.join(str(error).split())[:200]}") from error
    except RecursionError as error:
        raise UserError(f"the gates {file} are nested too deeply: write fields, one a line") from error
    if not isinstance(said, dict) or not all(isinstance(name, str) for name in said):
        raise UserError(f"the gates {file} must be fields, one a line: {', '.join(Gates.model_fields)}")
    try:
        return Gates.model_validate_json(json.dumps(said, default=str, skipkeys=True))
    except ValidationError as error:
        raise UserError(f"the gates {file}: {problems_of(error)}") from error


def limits_of(asked: Asked) -> JobLimits:
    """Raises: UserError: a limit that leaves nothing."""
    if asked.max_usd is not None and not 1e-6 <= asked.max_usd < 1e9:
        raise UserError("--max-usd must be more than 0")
    wanted: dict[str, Any] = {
        "max_turns_per_handoff": asked.max_turns,
        "max_microusd": microusd(asked.max_usd),
        "max_rounds": asked.max_rounds,
        "max_seconds": asked.timeout_s,
        "on_limit": asked.on_limit,
    }
    return JobLimits(**{name: value for name, value in wanted.items() if value is not None})


def request_of(asked: Asked, jobs: Client) -> Request:
    """Checked, and with its documents read; says on stderr what was left out of them.

    Raises:
        UserError: whatever is wrong with it.
    """
    from supervisor.cli.approving import approvals_of
    from supervisor.client import Request
    from supervisor.submission import plan_of
    from supervisor.workflows import Items, read_items, read_workflow

    request = Request(
        text=asked.request,
        documents=asked.docs,
        skip_bad_documents=asked.skip_bad_docs,
        limits=limits_of(asked),
        model=asked.model,
        answer_schema=asked.answer_schema,
        tenant=asked.tenant,
        idempotency_key=asked.idempotency_key,
        webhook_url=asked.webhook,
        mode=asked.mode,
        workflow=read_workflow(asked.workflow) if asked.workflow else None,
        items=read_items(asked.items) if asked.items else Items(),
        gates=asked.gates,
        approvals=approvals_of(asked),
    )
    jobs.check(request)
    if asked.docs is not None:
        reading = jobs.read_documents(request)
        for left_out in reading.notes:
            note(f"documents: {left_out}")
        request = replace(request, documents=reading)
    plan_of(request)
    return request


def check_model(model: str | None, settings: Settings) -> None:
    """Before anything is started on this machine.

    Raises:
        MissingCredentials: a real model, and nothing to reach it with.
    """
    if model is not None and model != OFFLINE_MODEL and settings.is_offline:
        raise MissingCredentials(
            f"{model} needs a key: set ANTHROPIC_API_KEY, or ANTHROPIC_BASE_URL for a server of your own "
            "(without --model the offline model answers)"
        )
