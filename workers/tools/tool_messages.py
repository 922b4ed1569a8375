"""Messages between a worker and its tool host, each as one line of JSON. The worker trusts no
message of the host.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from handoff_queue.shared.agent.tool import CallContext, Reads
from handoff_queue.shared.agent.tool_values import MOST_IMAGES_A_RESULT
from handoff_queue.workers.tools.tool_decorator import LONGEST_TIMEOUT_S

MOST_RESULT_BYTES = 24_000_000
"""Bytes of one result as JSON. The four largest images have 20,000,000 bytes of base64."""
MOST_REPORT_BYTES = 50_000_000
"""Bytes of all definitions of tools."""
MOST_TEXT_CHARS = 1_000


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ToolLimits(_Message):
    """Limits of each process of a tool."""

    memory_bytes: int
    cpu_s: int
    file_bytes: int
    open_files: int
    processes: int


class HostConfig(_Message):
    """Everything that a tool host needs at its start."""

    python_path: tuple[str, ...]
    """`sys.path` of the worker."""
    folders: tuple[str, ...]
    limits: ToolLimits


class ToolDefinition(_Message):
    """A user's tool without its code."""

    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")
    description: str
    input_schema: dict[str, Any]
    repeatable: bool
    timeout_s: float = Field(gt=0, le=LONGEST_TIMEOUT_S)
    secrets: tuple[Annotated[str, Field(pattern=r"^\w{1,200}$")], ...]
    credentials: tuple[Annotated[str, Field(pattern=r"^\w{1,200}$")], ...] = ()
    """Names of credentials of the job's tenant."""
    reads_context: bool
    reads: Reads = "private"
    acts: bool = False
    sends: tuple[Annotated[str, Field(max_length=260)], ...] = ()


class Loading(_Message):
    """The host loads this file or entry point now."""

    loading: str = Field(max_length=MOST_TEXT_CHARS)


class Refused(_Message):
    """The host cannot load a tool."""

    refused: str


class ToolSource(_Message):
    """A folder, or the installed packages, with its tools."""

    place: str
    tools: tuple[ToolDefinition, ...]


class Loaded(_Message):
    """The host has loaded all tools."""

    sources: tuple[ToolSource, ...]


Report = TypeAdapter[Loading | Refused | Loaded](Loading | Refused | Loaded)


class CallRequest(_Message):
    """Arguments of a call, its context if the tool reads it, and the secrets of the tool, with the
    credentials of the tenant.

    Only the child of the call reads it, so no secret is in the memory of the host.
    """

    arguments: dict[str, Any]
    context: CallContext | None
    secrets: dict[str, str]


class Returned(_Message):
    """Output of a call that returned."""

    text: str
    images: tuple[str, ...] = Field(max_length=MOST_IMAGES_A_RESULT)
    """The bytes of each image as base64."""


class Failed(_Message):
    """Text of a `ToolFailed`."""

    failed: str


class Raised(_Message):
    """Any other exception. Its text may hold a secret, so it is left out."""

    raised: str = Field(pattern=r"^\w{1,100}$")
    """Type of the exception."""
    place: str = Field(max_length=MOST_TEXT_CHARS)
    """File and line."""


CallResult = TypeAdapter[Returned | Failed | Raised](Returned | Failed | Raised)
