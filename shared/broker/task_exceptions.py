"""Exceptions that end a Celery task without a return, each with its event for Flower."""

from __future__ import annotations

from typing import Any

from celery.exceptions import Ignore


class EventBeforeEnd(Ignore):  # type: ignore[misc]
    """The task ends without a return. Its request sends this event about the task first.

    The request sends the event, and not the task: an event of the task would overtake
    `task-started`, which may still wait in the worker's buffer.
    """

    event = ""

    def fields(self) -> dict[str, Any]:
        return {"exception": str(self), "traceback": ""}


class TaskWaits(EventBeforeEnd):
    """The attempt ends, and the handoff waits. The exception's text is the reason."""

    event = "task-retried"


class TaskFails(EventBeforeEnd):
    """The attempt has failed, and no task tries it again. The exception's text is the reason."""

    event = "task-failed"


class TaskUnwanted(EventBeforeEnd):
    """No job needs the result of this delivery."""

    event = "task-revoked"

    def fields(self) -> dict[str, Any]:
        return {"terminated": False, "signum": None, "expired": False}
