"""The page of all events, from their classes."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, get_args

from pydantic import BaseModel

from docs.generator.annotations import bounded_type, namespace_of, printed_type, public_name
from docs.generator.markdown import (
    attribute_docstrings,
    code,
    docstring_of,
    first_sentence,
    table,
)
from handoff_queue.shared.types.events import ApprovalEvent, Event
from handoff_queue.shared.types.job_events import JobEvent
from handoff_queue.shared.types.step_events import StepEvent

INTRODUCTION = """\
# Events

The journal of a job is a list of events. `Client.events` yields each event as a `RecordedEvent`, with its version in the journal and its time.
`handoff export` writes the same events as JSON.

Events are small. They hold ids, digests, figures, titles of jobs and steps, and short texts of the supervisor. Other texts of a model or a person are payloads: an event
names a payload by its digest (`BlobRef`).
"""  # noqa: E501 - lines of a text
GROUPS = {"Jobs": JobEvent, "Steps": StepEvent, "Approvals": ApprovalEvent}


def page() -> str:
    """Return the text of the page."""
    parts = [INTRODUCTION]
    for heading, union in GROUPS.items():
        rows: list[tuple[str, str]] = []
        for event in get_args(union):
            link = f"[`{type_of(event)}`](#{type_of(event)})"
            rows.append((link, first_sentence(event.__doc__)))
        parts.append(table([heading, "What has happened"], rows))
    parts += map(section, get_args(Event))
    return "\n".join(parts)


def type_of(event: type[BaseModel]) -> str:
    """Return the value of an event's field `type`."""
    return str(event.model_fields["type"].default)


def section(event: type[BaseModel]) -> str:
    return f"## {type_of(event)}\n\n{docstring_of(event)}\n\n{field_table(event, hidden={'type'})}"


def field_type(kind: type, name: str) -> str:
    """Return the type of a field and its bounds, as the first class that writes it does."""
    for base in kind.__mro__:
        if name in (written := vars(base).get("__annotations__", {})):
            return bounded_type(*printed_type(written[name], namespace_of(base)))
    raise KeyError(name)


def field_table(model: type[BaseModel], hidden: set[str]) -> str:
    """Return a table of the fields of a model with their types, defaults and docstrings."""
    texts = attribute_docstrings(model)
    rows: list[tuple[str, str, str, str]] = []
    for name, field in model.model_fields.items():
        if name not in hidden:
            kind = field_type(model, name)
            rows.append((code(name), kind, default_text(field), texts.get(name, "")))
    return table(["Field", "Type", "Default", "Meaning"], rows)


def default_text(field: Any) -> str:
    """Return the default of a field, or `required`."""
    if field.is_required():
        return "required"
    if field.default_factory is not None:
        return code(f"{public_name(field.default_factory)}()")
    return code(shown(field.default))


def shown(default: Any) -> str:
    """Return a default as a program writes it. A model is shown without its fields."""
    if isinstance(default, BaseModel):
        return f"{public_name(type(default))}()"
    if isinstance(default, StrEnum):
        return f'"{default.value}"'
    if isinstance(default, str):
        return f'"{default}"'
    return str(default)
