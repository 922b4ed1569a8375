"""The user or program that acts through a client."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import StringConstraints

from handoff_queue.shared.types.message import PublicMessage

MAX_ACTOR_CHARS = 200
"""Most characters of a name, and of an address. An IPv6 address has at most 45, and a host name
that a proxy forwards may be longer.
"""
_Line = Annotated[str, StringConstraints(min_length=1, max_length=MAX_ACTOR_CHARS)]


class Actor(PublicMessage):
    """A user or a program that acts. The texts are untrusted: the caller of the client gives
    them.
    """

    name: _Line
    """The name of a user or of a token."""
    via: Literal["python", "cli", "api", "console", "mcp"]
    """The way to the queue."""
    address: _Line | None = None
    """The address or the host name that the action came from."""
    token: _Line | None = None
    """The id of the token that the HTTP API accepted. Never its secret."""
