"""Actors, and entries of the audit: their actions on jobs and on the fleet."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import StringConstraints

from handoff_queue.shared.types.message import Message, PublicMessage, UnixTime

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


class AuditAction(StrEnum):
    """Actions of users. The journal of a job holds the actions from `submit` to `reject`, and the
    audit stream holds the others.
    """

    SUBMIT = "submit"
    CANCEL = "cancel"
    RETRY = "retry"
    SAY = "say"
    APPROVE = "approve"
    REJECT = "reject"
    DELETE = "delete"
    DELETE_TENANT = "delete_tenant"
    PAUSE = "pause"
    UNPAUSE = "unpause"
    REQUEUE = "requeue"
    DROP = "drop"
    CREATE_TOKEN = "create_token"  # noqa: S105 (no secret)
    REVOKE_TOKEN = "revoke_token"  # noqa: S105 (no secret)
    ADD_SCHEDULE = "add_schedule"
    PAUSE_SCHEDULE = "pause_schedule"
    UNPAUSE_SCHEDULE = "unpause_schedule"
    REMOVE_SCHEDULE = "remove_schedule"
    WRITE_NOTE = "write_note"
    DELETE_NOTE = "delete_note"
    REFUSE = "refuse"
    """Redis refused a command to one of its users, or a process refused a message because of its
    signature. No user did this.
    """


class AuditEntry(Message):
    """An action of a user, or a refusal."""

    at: UnixTime
    """The time by the clock of Redis."""
    action: AuditAction
    subject: str
    """The id of the job, of the dead letter or of the token. Or the name of the agent, of the
    schedule, of the tenant or of the Redis user. Or the path of the note.
    """
    detail: str = ""
    """The reason of a pause, or the name and the rights of a token. The subject of an answer, or
    the tenant of a schedule or of a note. For a cancel by a schedule, the schedule.
    """
    actor: Actor | None = None
    """The user or program; None if the client names none."""
