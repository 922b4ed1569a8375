"""Messages between a worker and its tool host, each as one line of JSON. The worker trusts no
message of the host.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from handoff_queue.shared.agent.tool import CallContext, Reads
from handoff_queue.shared.agent.tool_return_values import MAX_IMAGES_A_RESULT
from handoff_queue.shared.types.limits import MAX_TOOL_TIMEOUT_S

MAX_RESULT_BYTES = 24_000_000
"""Bytes of one result as JSON. The four largest images have 20,000,000 bytes of base64."""
MAX_RESULT_VALUES = 1_000
"""JSON values of one result. A true result has fewer than 20: its texts and its images."""
MAX_REPORT_BYTES = 50_000_000
"""Bytes of all definitions of tools."""
MAX_TEXT_CHARS = 1_000
_WORD = r"^\w+$"
"""The length is a separate limit: pydantic takes 100 ms to compile `\\w{1,200}`."""
VariableName = Annotated[str, Field(pattern=_WORD, max_length=200)]
INSTALLED = "an installed package"
"""Place of the tools of installed packages."""


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
    may_limit_networks: bool = False
    """True if the operator may limit the network of a tool."""


class ToolDefinition(_Message):
    """A user's tool without its code."""

    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")
    description: str
    input_schema: dict[str, Any]
    repeatable: bool
    timeout_s: float = Field(gt=0, le=MAX_TOOL_TIMEOUT_S)
    secrets: tuple[VariableName, ...]
    credentials: tuple[VariableName, ...] = ()
    """Names of credentials of the job's tenant."""
    reads_context: bool
    reads: Reads = "private"
    acts: bool = False
    sends: tuple[Annotated[str, Field(max_length=260)], ...] = ()
    network: tuple[Annotated[str, Field(max_length=260)], ...] | None = None
    """The only hosts that a call may reach. None: all networks."""


class Loading(_Message):
    """The host loads this file or entry point now."""

    loading: str = Field(max_length=MAX_TEXT_CHARS)


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
    border_fault: str = Field(default="", max_length=MAX_TEXT_CHARS)
    """Reason why this machine cannot limit the network of a tool. Empty if it can, or if no tool
    needs it.
    """


Report = TypeAdapter[Loading | Refused | Loaded](Loading | Refused | Loaded)


class NetworkAccess(StrEnum):
    """Networks that the process of a call reaches."""

    ALL = "all"
    PROXY = "proxy"
    """Only a proxy of the worker."""
    NONE = "none"


class CallRequest(_Message):
    """Arguments of a call, its context if the tool reads it, and the secrets of the tool, with the
    credentials of the tenant.

    Only the child of the call reads it, so no secret is in the memory of the host.
    """

    arguments: dict[str, Any]
    context: CallContext | None
    secrets: dict[str, str]
    network: NetworkAccess = NetworkAccess.ALL


class Returned(_Message):
    """Output of a call that returned."""

    text: str
    images: tuple[str, ...] = Field(max_length=MAX_IMAGES_A_RESULT)
    """The bytes of each image as base64."""


class Failed(_Message):
    """Text of a `ToolFailed`."""

    failed: str


class Raised(_Message):
    """Any other exception. Its text may hold a secret, so it is left out."""

    raised: str = Field(pattern=_WORD, max_length=100)
    """Type of the exception."""
    place: str = Field(max_length=MAX_TEXT_CHARS)
    """File and line."""


CallResult = TypeAdapter[Returned | Failed | Raised](Returned | Failed | Raised)
