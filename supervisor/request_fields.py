"""The fields of a `Request`, one by one: types, names, addresses. Python's callers write them as they like, as a file's authors do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from shared.wire.errors import UserError
from shared.wire.ids import NAME_PATTERN
from shared.wire.limits import JobLimits
from shared.wire.mode import Mode
from shared.wire.names import RESERVED, SUB_SUPERVISOR
from shared.wire.priority import Priority

if TYPE_CHECKING:
    from supervisor.request import Request


def check_names(request: Request) -> None:
    """Raises: UserError: an empty or unprintable name, a specialist that cannot be one, a webhook that is no URL."""
    for what, text in (
        ("the idempotency key", request.idempotency_key),
        ("the model's name", request.model),
    ):
        if text is not None and not (text.strip() and text.isprintable()):
            raise UserError(f"{what} is empty, or no plain line: name one, or leave it out")
    for name in request.specialists:
        check_specialist(name)
    for step in request.workflow.steps if request.workflow else ():
        if step.specialist != SUB_SUPERVISOR:
            check_specialist(step.specialist, f"step {step.id}: ")
    if request.webhook_url is not None and not _is_url(request.webhook_url):
        raise UserError(
            "the webhook must be an http:// or https:// URL with a host, and without spaces"
        )


def check_specialist(name: str, where: str = "") -> None:
    """Raises: UserError: no specialist can be called so."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise UserError(
            f"{where}no specialist can be called {name!r:.80}: `handoff specialists` lists those that are there"
        )
    if name in RESERVED:
        raise UserError(
            f"{where}{name} is the system's own name, and no specialist's: `handoff specialists` lists those that are there"
        )


def check_types(request: Request) -> None:
    """Raises: UserError: a field is of another type."""
    wanted: tuple[tuple[str, object, type, bool], ...] = (
        ("the request", request.text, str, False),
        ("the tenant", request.tenant, str, False),
        ("the limits", request.limits, JobLimits, False),
        ("the model", request.model, str, True),
        ("the mode", request.mode, Mode, True),
        ("the priority", request.priority, Priority, True),
        ("the idempotency key", request.idempotency_key, str, True),
        ("the webhook", request.webhook_url, str, True),
        ("on_end", request.on_end, Mapping, True),
    )
    for what, value, kind, may_be_none in wanted:
        if not (isinstance(value, kind) or (may_be_none and value is None)):
            raise UserError(f"{what} must be of type {kind.__name__}, not {type(value).__name__}")
    names: object = request.specialists
    if (
        isinstance(names, str)
        or not isinstance(names, tuple | list)
        or not all(isinstance(name, str) for name in names)
    ):
        raise UserError("specialists must be a tuple of names: write ('writer',) for one")


def _is_url(text: str) -> bool:
    """Of a server."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    is_plain = text.isprintable() and " " not in text
    return is_plain and parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0
