"""Tokens of the HTTP API. A token has a role, and it may belong to one tenant."""

from __future__ import annotations

from enum import StrEnum

from handoff_queue.shared.types.message import Message


class ApiRole(StrEnum):
    """The actions that a token allows. Each role includes the roles before it."""

    READ = "read"
    """See jobs, their events, results and documents."""
    SUBMIT = "submit"
    """Submit jobs; add and run schedules."""
    OPERATE = "operate"
    """Cancel, retry, approve, reject and delete jobs; send messages to their agents; pause roles;
    handle dead letters; pause and remove schedules.
    """
    ADMIN = "admin"
    """Create and revoke tokens."""

    def includes(self, other: ApiRole) -> bool:
        """Return whether this role allows everything that the other role allows."""
        roles = list(ApiRole)
        return roles.index(self) >= roles.index(other)


class ApiToken(Message):
    """A token without its secret."""

    id: str
    name: str
    role: ApiRole
    tenant: str | None
    """The only tenant that the token sees. None: every tenant. Only such a token acts on the
    fleet.
    """
    created_at: float
    """Unix time in seconds, by Redis's clock."""
    expires_at: float | None = None
    """Unix time in seconds. None: the token does not expire."""
