"""Tools: their parameters, and the values and images that they return."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from handoff_queue.shared.types.errors import HandoffError, InvalidTool
from handoff_queue.shared.types.handoff import Document, Manifest
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.job_events import DEFAULT_TENANT

_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
"""The API answers 400 to a request with any other name: "Property keys should match pattern
...". It checks top-level names only.
"""


def check_parameter_names(tool: str, schema: Mapping[str, Any]) -> None:
    """Raise InvalidTool if the provider would refuse every request with this tool because of a
    parameter's name.
    """
    for name in schema.get("properties", {}):
        if not _NAME.fullmatch(name):
            raise InvalidTool(
                f"tool {tool}: rename parameter {name[:80]!r}: the provider takes 1 to 64 of the characters "
                "a-z, A-Z, 0-9, '_', '.' and '-'"
            )


class ToolFailed(HandoffError):
    """A tool raises this to tell the model, in one line, the failure and the next action. It is an
    observation of the model and not an error of the system.
    """


@dataclass(frozen=True, slots=True)
class CallContext:
    """Facts about a call that a user's tool may read.

    The worker fills in a parameter of this type; the model never sees it.
    """

    tenant: str
    job_id: str
    handoff_id: str
    step_id: str
    """The step of the job's plan that the handoff is an attempt at."""
    attempt: int
    """1 for the first attempt at the step."""
    deadline: datetime
    """End of the handoff's time, in UTC."""
    idempotency_key: str
    """64 hexadecimal digits. The same each time this call is run, also after its worker was
    killed; another one for any other call.
    """


@dataclass(frozen=True, slots=True)
class Image:
    """A picture that a tool returned."""

    media_type: str
    data: bytes
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """Output of a tool in the form that the model sees."""

    text: str
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Facts about the caller that a running tool may read."""

    job_id: JobId
    handoff_id: HandoffId
    manifest: Manifest
    """The job's documents."""
    text_of: Callable[[str], str]
    """The extracted text of a document by digest (out of the store, cached).  Raises: ToolFailed.
    """
    keep_document: Callable[[str, str, str], Document]
    """(source, media_type, text) -> the document, stored in the store so that it can be cited
    like any other.
    """
    remaining_s: Callable[[], float]
    """Seconds until the handoff's deadline."""
    fetched: Callable[[], tuple[Document, ...]] = tuple
    """Pages that were fetched for this job: documents like any other."""
    call_id: str = ""
    """The `tool_use` id of the call that runs."""
    note_result: Callable[[str, str], None] = lambda _source, _text: None
    """(source, text): let the answer of this handoff cite the result of a tool."""
    tenant: Callable[[], str] = lambda: DEFAULT_TENANT
    """The tenant of the job (out of the store).  Raises: StoreError."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool. Its result is untrusted text: data for the model, never instructions to the program."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    run: Callable[[dict[str, Any], ToolContext], str | ToolOutput] | None
    """None for a server-side tool that the provider runs; `server_param` is sent to the provider.
    """
    server_param: Mapping[str, Any] | None = None
    repeatable: bool = True
    """True if the tool is safe to run again after a crash. Other tools are not repeated, and the
    model is told so.
    """
    is_source: bool = False
    """True if an answer may cite its results. This holds for a user's tools, and not for a search
    in documents.
    """
    timeout_s: float | None = None
    """Seconds after which a call has failed, and its thread is abandoned. None: only the handoff's
    own limit applies.
    """
