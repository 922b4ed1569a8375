"""Entries of the audit: an action of a user on a job or on the fleet."""

from __future__ import annotations

from enum import StrEnum

from handoff_queue.shared.types.actor import Actor
from handoff_queue.shared.types.message import Message


class AuditAction(StrEnum):
    """Actions of users. The journal of a job holds the first five, and the audit stream holds
    the others.
    """

    SUBMIT = "submit"
    CANCEL = "cancel"
    RETRY = "retry"
    APPROVE = "approve"
    REJECT = "reject"
    DELETE = "delete"
    PAUSE = "pause"
    UNPAUSE = "unpause"
    REQUEUE = "requeue"
    DROP = "drop"
    CREATE_TOKEN = "create_token"  # noqa: S105 (no secret)
    REVOKE_TOKEN = "revoke_token"  # noqa: S105 (no secret)


class AuditEntry(Message):
    """An action of a user."""

    at: float
    """Unix time in seconds, by Redis's clock."""
    action: AuditAction
    subject: str
    """The id of the job, of the dead letter or of the token; or the name of the role."""
    detail: str = ""
    """The reason of a pause; the name and the rights of a token; the subject of an answer."""
    actor: Actor | None = None
    """The user or program; None if the client names none."""
