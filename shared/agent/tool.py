"""Tools, the facts that a running tool may read, and the output that it returns."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from handoff_queue.shared.types.errors import HandoffError, InvalidTool
from handoff_queue.shared.types.ids import parse_attempt, parse_step_id
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.names import DEFAULT_TENANT
from handoff_queue.shared.types.origins import UNKNOWN, WEB, Origin, build_tool_origin

if TYPE_CHECKING:  # Without the types of messages, a tool host starts with less processor time.
    from handoff_queue.shared.types.handoff import Citation, Document, Manifest
    from handoff_queue.shared.types.ids import HandoffId, JobId
    from handoff_queue.shared.types.memory_notes import TenantNotes

Reads = Literal["private", "public"]
ANY_HOST = "*"
"""The entry of `Tool.sends` for a host that the model chooses."""
_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
"""Names of parameters that the API takes. It answers 400 to a request with any other name:
"Property keys should match pattern ...". It checks top-level names only.
"""


def check_parameter_names(tool: str, schema: Mapping[str, Any]) -> None:
    """Check that the provider takes the names of the tool's parameters.

    Args:
        tool: name of the tool.
        schema: JSON Schema of its parameters.

    Raises:
        InvalidTool: the provider would refuse every request with this tool.
    """
    for name in schema.get("properties", {}):
        if not _NAME.fullmatch(name):
            raise InvalidTool(
                f"tool {tool}: rename parameter {name[:80]!r}: the provider takes 1 to 64 of the"
                " characters a-z, A-Z, 0-9, '_', '.' and '-'"
            )


class ToolFailed(HandoffError):
    """The failure of a tool call. The message tells the model, in one line, the failure and a
    next action.
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
    """64 hexadecimal digits. The key is the same each time this call is run, also after its
    worker was killed. Each other call has another key.
    """


@dataclass(frozen=True, slots=True)
class Image:
    """An image that a tool returned."""

    media_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """Output of a tool in the form that the model sees."""

    text: str
    images: tuple[Image, ...] = ()
    origins: tuple[Origin, ...] | None = None
    """Origins of the text; None: the tool has declared the origins."""
    is_repeated: bool = False
    """True if the text only says that requests show the result already."""


def _no_sources(_source: str, _quote: str) -> Citation:
    raise ToolFailed("this process has no sources")


def _no_notes() -> TenantNotes:
    raise ToolFailed("memory: this handoff has no memory: go on without notes")


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Facts about the caller that a running tool may read."""

    job_id: JobId
    handoff_id: HandoffId
    manifest: Manifest
    """The job's documents."""
    text_of: Callable[[str], str]
    """Returns the extracted text of the document with a digest, from a cache or the store.
    Raises ToolFailed.
    """
    keep_document: Callable[[str, str, str], Document]
    """Stores a text as a document that answers can cite, and returns the document. Its
    arguments are the source, the media type and the text.
    """
    remaining_s: Callable[[], float]
    """Returns the seconds until the handoff's deadline."""
    load_fetched_pages: Callable[[], tuple[Document, ...]] = tuple
    """Returns the pages that were fetched for this job, as documents, the newest first."""
    call_id: str = ""
    """The `tool_use` id of the call that runs."""
    record_tool_result: Callable[[str, str], None] = lambda _source, _text: None
    """Makes a tool result citable for the answer of this handoff. Its arguments are the source
    and the text.
    """
    texts_shown: Callable[[], Sequence[str]] = tuple
    """Returns the texts that requests to the model show."""
    record_text: Callable[[str], None] = lambda _text: None
    """Takes a text that the model has seen: the opening message, or the result of a call."""
    hide_text: Callable[[str], None] = lambda _text: None
    """Takes a text that requests to the model no longer show."""
    tenant: Callable[[], str] = lambda: DEFAULT_TENANT
    """Returns the tenant of the job from the store. Raises StoreError."""
    is_abandoned: Callable[[], bool] = lambda: False
    """Returns whether nothing waits for the result of this call any more."""
    prove: Callable[[str, str], Citation] = _no_sources
    """Returns the place of a quote in a source of the handoff. Its arguments are the source and
    the quote. Raises ToolFailed.
    """
    notes: Callable[[], TenantNotes] = _no_notes
    """Returns the notes of the tenant. Raises ToolFailed if the handoff has no memory."""
    seen_origins: Callable[[], tuple[Origin, ...]] = lambda: UNKNOWN
    """Returns the origins of everything that the model has seen in this handoff."""
    record_arguments: Callable[[str, Any], None] = lambda _tool, _arguments: None
    """Takes the name of a called tool, and the arguments that the model wrote."""
    has_own_sentence: Callable[[Citation, str], bool] = lambda _citation, _statement: False
    """Returns whether a sentence of a quote proves nothing for a statement, because the model wrote
    its words into a call.
    """
    hosts: tuple[str, ...] = ()
    """The only hosts that `fetch_url` may reach for this specialist; empty: all public hosts."""


def build_call_context(
    name: str, arguments: Mapping[str, Any], context: ToolContext
) -> CallContext:
    """Return the facts about a call that a user's tool may read. The tenant is read from the
    store.

    Args:
        name: name of the tool.
    """
    call = [context.job_id, context.handoff_id, context.call_id, name, arguments]
    call_text = json.dumps(call, sort_keys=True)
    ends_at = time.time() + context.remaining_s()
    return CallContext(
        tenant=context.tenant(),
        job_id=context.job_id,
        handoff_id=context.handoff_id,
        step_id=parse_step_id(context.handoff_id),
        attempt=parse_attempt(context.handoff_id),
        deadline=datetime.fromtimestamp(ends_at, UTC),
        idempotency_key=compute_digest(call_text),
    )


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the model may call. Its result is untrusted data."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    run: Callable[[dict[str, Any], ToolContext], str | ToolOutput] | None
    """Runs the tool with its arguments. None for a server-side tool, which the provider runs."""
    server_param: Mapping[str, Any] | None = None
    """Definition of a server-side tool in the form of the Messages API. None for other tools."""
    repeatable: bool = True
    """True if the tool is safe to run again after a crash. Other tools are not repeated, and
    the model is told so.
    """
    is_source: bool = False
    """True if an answer may cite its results, as for a user's tool. A search in documents is
    not a source: the documents are.
    """
    is_lookup: bool = False
    """True if the same arguments give the same result during a handoff. A repeated call is not
    run: one line refers to the earlier result.
    """
    reads_documents: bool = False
    """True if it only searches or reads the documents of the job, and pages that were kept."""
    timeout_s: float | None = None
    """Seconds after which a call has failed, and its thread is abandoned. None: only the
    handoff's own limit applies.
    """
    ends_when_abandoned: bool = False
    """True if a call ends soon after it was abandoned, because it runs in its own process."""
    reads: Reads = "private"
    """Kind of data in the results."""
    acts: bool = False
    """True if a call changes something outside of the job, such as an order or a message."""
    writes: bool = False
    """True if a call changes data of the tenant in our store, such as a note of the memory."""
    sends: tuple[str, ...] = ()
    """Hosts that get data of the call; `ANY_HOST`: the model chooses the host."""
    url_argument: str | None = None
    """Argument that holds the URL that a call sends to. None: the hosts in `sends` are fixed."""
    origins: tuple[Origin, ...] | None = None
    """Origins of the results; None: see `result_origins`."""

    @property
    def changes_something(self) -> bool:
        """Return whether a call may change something. The author of a tool that is not safe to
        repeat may have left out `acts`.
        """
        return self.acts or self.writes or not self.repeatable

    @property
    def result_origins(self) -> tuple[Origin, ...]:
        """Return the origins of the tool's results. A tool that reads only public data gives
        public content, as a web page does.
        """
        if self.origins is not None:
            return self.origins
        if self.reads == "public":
            return (WEB,)
        return (build_tool_origin(self.name),)
