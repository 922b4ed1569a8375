"""The fields of a `Request`, one by one: types, names, addresses. Python's callers write them as they like, as a file's authors do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from handoff_queue.shared.documents.files import LONGEST_PATH, MACHINE_MADE
from handoff_queue.shared.settings.http_values import split_http_url
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.facts import FactTable
from handoff_queue.shared.types.gates import Gates
from handoff_queue.shared.types.ids import NAME_PATTERN
from handoff_queue.shared.types.job_options import Approvals, Mode, Priority
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.message import Message, problems_of
from handoff_queue.shared.types.names import RESERVED, SUB_SUPERVISOR
from handoff_queue.shared.types.review import Rubric
from handoff_queue.supervisor.client.argument_types import check_type

if TYPE_CHECKING:
    from handoff_queue.supervisor.client.request import Request


def check_documents(documents: object) -> None:
    """Raises: UserError: documents of another type, or a name that no document can have."""
    from handoff_queue.shared.documents.folder import (
        FolderReading,  # reads YAML and HTML: slow to import
    )

    if isinstance(documents, Mapping):
        for name, content in documents.items():
            if not (isinstance(name, str) and isinstance(content, bytes)):
                raise UserError("documents by name must be a mapping of str to bytes")
            if not _is_document_name(name):
                raise UserError(
                    f"no document can be called {name!r:.80}: write a relative path such as 'notes/a.md', "
                    "without `..` and without parts that begin with a dot"
                )
    elif not isinstance(documents, Path | FolderReading | None):
        hint = f": write Path({documents!r:.80})" if isinstance(documents, str) else ""
        raise UserError(
            "documents must be a pathlib.Path, a mapping of names to bytes, or what `read_documents` returned, "
            f"not {type(documents).__name__}{hint}"
        )


def _is_document_name(name: str) -> bool:
    """The same that a folder may hold: hidden files are no documents."""
    parts = name.split("/")
    return (
        len(name) <= LONGEST_PATH
        and name.isprintable()
        and "\\" not in name
        and all(part and not part.startswith(".") and part not in MACHINE_MADE for part in parts)
    )


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
    if request.webhook_url is not None:
        check_webhook(request.webhook_url)


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
    """Raises: UserError: a field is of another type, or a value in it is outside its bounds."""
    from handoff_queue.supervisor.workflows import Items, Workflow

    wanted: tuple[tuple[str, object, type, bool], ...] = (
        ("the request", request.text, str, False),
        ("strict_documents", request.strict_documents, bool, False),
        ("the tenant", request.tenant, str, False),
        ("the limits", request.limits, JobLimits, False),
        ("the model", request.model, str, True),
        ("the answer schema", request.answer_schema, Mapping, True),
        ("the mode", request.mode, Mode, True),
        ("the workflow", request.workflow, Workflow, True),
        ("the items", request.items, Items, False),
        ("the gates", request.gates, Gates, True),
        ("the facts", request.facts, FactTable, True),
        ("the rubric", request.rubric, Rubric, True),
        ("the approvals", request.approvals, Approvals, True),
        ("the priority", request.priority, Priority, True),
        ("after", request.after, str, True),
        ("the idempotency key", request.idempotency_key, str, True),
        ("the webhook", request.webhook_url, str, True),
        ("on_end", request.on_end, Mapping, True),
    )
    for what, value, kind, may_be_none in wanted:
        if not (may_be_none and value is None):
            check_type(what, value, kind)
        if isinstance(value, Message):
            check_bounds(what, value)
    names: object = request.specialists
    if (
        isinstance(names, str)
        or not isinstance(names, tuple | list)
        or not all(isinstance(name, str) for name in names)
    ):
        raise UserError("specialists must be a tuple of names: write ('writer',) for one")


def check_bounds(what: str, message: Message) -> None:
    """Validate a message again: `model_copy` and `model_construct` take any value.

    Raises:
        UserError: a value is outside its bounds.
    """
    try:
        type(message).model_validate(message.model_dump(warnings=False))
    except ValidationError as error:
        raise UserError(f"{what}: {problems_of(error)}") from error


def check_webhook(url: str) -> None:
    """Check that a POST can be sent there.

    Raises:
        UserError: it cannot, or the URL holds a password, which would be stored with the job.
    """
    try:
        parts = split_http_url(url)
    except ValueError as error:
        raise UserError(f"the webhook's URL {error}") from None
    if "@" in parts.netloc:
        raise UserError(
            "the webhook's URL must not hold a user or a password, which would be stored with the job: "
            "leave them out, and check the signature instead (HANDOFF_WEBHOOK_SECRET)"
        )
