"""Tokens of the HTTP API. A token has an access level, and it may belong to one tenant."""

from __future__ import annotations

from enum import StrEnum

from handoff_queue.shared.types.message import Message


class AccessLevel(StrEnum):
    """The actions that a token allows. Each level includes the levels before it."""

    READ = "read"
    """See jobs, their events, results and documents."""
    SUBMIT = "submit"
    """Submit jobs; add and run schedules."""
    OPERATE = "operate"
    """Cancel, retry, approve, reject and delete jobs; send messages to their agents; pause agents;
    handle dead letters; pause and remove schedules.
    """
    ADMIN = "admin"
    """Create and revoke tokens."""

    def includes(self, other: AccessLevel) -> bool:
        """Return whether this level allows everything that the other level allows."""
        levels = list(AccessLevel)
        return levels.index(self) >= levels.index(other)


class ApiToken(Message):
    """A token without its secret."""

    id: str
    name: str
    access: AccessLevel
    tenant: str | None
    """The only tenant that the token sees. None: every tenant. Only such a token acts on the
    fleet.
    """
    created_at: float
    """Unix time in seconds, by Redis's clock."""
    expires_at: float | None = None
    """Unix time in seconds. None: the token does not expire."""
