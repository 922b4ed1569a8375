"""The page of all events, from their classes."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, get_args

from pydantic import BaseModel

from docs.generator.annotations import (
    format_bounded_type,
    format_type,
    get_namespace,
    get_public_name,
)
from docs.generator.markdown import (
    build_table,
    format_code,
    get_docstring,
    get_first_sentence,
    read_attribute_docstrings,
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


def build_page() -> str:
    """Return the text of the page."""
    parts = [INTRODUCTION]
    for heading, union in GROUPS.items():
        rows: list[tuple[str, str]] = []
        for event in get_args(union):
            link = f"[`{get_event_type(event)}`](#{get_event_type(event)})"
            rows.append((link, get_first_sentence(event.__doc__)))
        parts.append(build_table([heading, "What has happened"], rows))
    parts += map(build_section, get_args(Event))
    return "\n".join(parts)


def get_event_type(event: type[BaseModel]) -> str:
    """Return the value of an event's field `type`."""
    return str(event.model_fields["type"].default)


def build_section(event: type[BaseModel]) -> str:
    table = build_field_table(event, hidden={"type"})
    return f"## {get_event_type(event)}\n\n{get_docstring(event)}\n\n{table}"


def format_field_type(kind: type, name: str) -> str:
    """Return the type of a field and its bounds, as the first class that writes it does."""
    for base in kind.__mro__:
        if name in (written := vars(base).get("__annotations__", {})):
            return format_bounded_type(*format_type(written[name], get_namespace(base)))
    raise KeyError(name)


def build_field_table(model: type[BaseModel], hidden: set[str]) -> str:
    """Return a table of the fields of a model with their types, defaults and docstrings."""
    texts = read_attribute_docstrings(model)
    rows: list[tuple[str, str, str, str]] = []
    for name, field in model.model_fields.items():
        if name not in hidden:
            kind = format_field_type(model, name)
            rows.append((format_code(name), kind, describe_default(field), texts.get(name, "")))
    return build_table(["Field", "Type", "Default", "Meaning"], rows)


def describe_default(field: Any) -> str:
    """Return the default of a field, or `required`."""
    if field.is_required():
        return "required"
    if field.default_factory is not None:
        return format_code(f"{get_public_name(field.default_factory)}()")
    return format_code(format_default(field.default))


def format_default(default: Any) -> str:
    """Return a default as a program writes it. A model is shown without its fields."""
    if isinstance(default, BaseModel):
        return f"{get_public_name(type(default))}()"
    if isinstance(default, StrEnum):
        return f'"{default.value}"'
    if isinstance(default, str):
        return f'"{default}"'
    return str(default)
