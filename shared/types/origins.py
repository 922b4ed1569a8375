"""The origins of a text: the places that its parts came from. Pure.

Code computes the origins, never a model. A text that is made from other texts has the origins of
each of these texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

ORIGIN_PATTERN = r"^(user|document|web|model|(tool|mcp) [a-zA-Z0-9_-]{1,64})$"
Origin = Annotated[str, StringConstraints(pattern=ORIGIN_PATTERN)]
"""One of `user`, `document`, `web`, `model`, `tool NAME` and `mcp SERVER`."""
Origins = Annotated[tuple[Origin, ...], Field(max_length=64)]
"""Origins in alphabetical order, each once."""
Kind = Literal["user", "document", "web", "tool", "mcp", "model"]
"""An origin without the name of its tool or server."""

USER: Origin = "user"
"""Words of the job's user."""
DOCUMENT: Origin = "document"
"""A document of the job."""
WEB: Origin = "web"
"""Public content: a web page, or the result of a tool that reads public data only."""
CODE_EXECUTION = "code_execution"
"""Name of the provider's tool that runs code within a model call."""
RUN_CODE = "run_code"
"""Name of the tool that runs code of the model in a sandbox of the worker."""
MODEL: Origin = "model"
"""Words that a model chose."""

UNKNOWN: tuple[Origin, ...] = (DOCUMENT, MODEL)
"""Origins of a payload that has none. The payload counts as private and untrusted."""
MAX_ORIGINS = 60
"""Most origins of a payload. With more, the tools and servers lose their names."""

PRIVATE: frozenset[Kind] = frozenset({"document", "tool", "mcp"})
"""Origins whose texts must not leave the installation without a decision."""
UNTRUSTED: frozenset[Kind] = frozenset({"document", "web", "tool", "mcp"})
"""Origins whose texts may hold instructions of an attacker."""


_RESULT = re.compile(r"tool:[^/]+/([a-zA-Z0-9_-]{1,64})#")
"""Beginning of the source of a tool's result or file, see `Conversation.find_source`."""


def find_tool(source: str) -> str | None:
    """Return the tool whose result or file has this source; None: it is another source."""
    result = _RESULT.match(source)
    return result[1] if result else None


def is_output_of_code(source: str) -> bool:
    """Return whether code of a model has made the text of a source. Such a text proves nothing,
    because the model chooses the words of its code.
    """
    return find_tool(source) == RUN_CODE


def build_tool_origin(name: str) -> Origin:
    """Return the origin of the results of a user's tool."""
    return f"tool {name}"


def build_mcp_origin(server: str) -> Origin:
    """Return the origin of the results of an MCP server."""
    return f"mcp {server}"


def get_kind(origin: Origin) -> str:
    """Return the origin without the name of its tool or server."""
    return origin.partition(" ")[0]


def union(*groups: Iterable[Origin]) -> tuple[Origin, ...]:
    """Return the origins of all groups, sorted, each once."""
    origins: set[Origin] = set()
    for group in groups:
        origins.update(group)
    if len(origins) > MAX_ORIGINS:
        origins = set(map(_without_name, origins))
    return tuple(sorted(origins))


def _without_name(origin: Origin) -> Origin:
    kind = get_kind(origin)
    return origin if kind == origin else f"{kind} other"


def get_origins(origins: Iterable[Origin] | None) -> tuple[Origin, ...]:
    """Return the origins of a payload, or `UNKNOWN` if the payload has none."""
    if origins is None:
        return UNKNOWN
    return union(origins)


def has_any(origins: Iterable[Origin], expected_names: Iterable[str]) -> bool:
    """Return whether an origin, or its kind, is among these names."""
    names = set(expected_names)
    return any(origin in names or get_kind(origin) in names for origin in origins)


def is_private(origins: Iterable[Origin], private: Iterable[str] = PRIVATE) -> bool:
    """Return whether a text of these origins may hold private data.

    Args:
        private: the private origins and kinds of origins.
    """
    return has_any(origins, private)


def is_untrusted(origins: Iterable[Origin], untrusted: Iterable[str] = UNTRUSTED) -> bool:
    """Return whether a text of these origins may hold an attacker's instructions.

    Args:
        untrusted: the untrusted origins and kinds of origins.
    """
    return has_any(origins, untrusted)
