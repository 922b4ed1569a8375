"""The page of `handoff_queue.types`, from its classes."""

from __future__ import annotations

from enum import Enum
from typing import Any, get_args

from docs.generator.events import get_event_type
from docs.generator.markdown import build_table, convert_docstring, get_first_sentence, join_parts
from docs.generator.python_api import build_members, get_own_docstring
from handoff_queue import types

UNIONS = {
    "Checkpoint": "One record of a turn. Any type of the group Checkpoints.",
    "Event": "One event of the journal. Any type of [the page of events](events.md).",
}
"""Name of a union -> what it is. A union has no docstring."""
INTRODUCTION = """\
# Types of fields

`handoff_queue.types` has the types that the fields of [public classes](python-api.md) refer to. A program uses them in annotations and in
checks such as `isinstance(recorded.event, HandoffFinished)`. The product constructs the values.
"""  # noqa: E501 - lines of a text


def build_page() -> str:
    """Return the text of the page."""
    parts = [INTRODUCTION]
    grouped = group_types()
    for heading, kinds in grouped.items():
        rows: list[tuple[str, str]] = []
        for name, kind in kinds.items():
            rows.append(
                (
                    f"[`{name}`]({build_link(name, kind)})",
                    get_first_sentence(get_docstring(name, kind)),
                )
            )
        parts.append(build_table([heading, "What it is"], rows))
    for heading, kinds in grouped.items():
        if heading != "Events":
            for name, kind in kinds.items():
                parts.append(build_section(name, kind))
    return "\n".join(parts)


def group_types() -> dict[str, dict[str, Any]]:
    """Return heading -> name -> type, for all names of the module."""
    events = get_args(types.Event)
    checkpoints = get_args(get_args(types.Checkpoint)[0])
    grouped: dict[str, dict[str, Any]] = {"Events": {}, "Checkpoints": {}, "Parts of them": {}}
    for name in sorted(types.__all__):
        kind = getattr(types, name)
        heading = "Parts of them"
        if kind in events:
            heading = "Events"
        elif kind in checkpoints:
            heading = "Checkpoints"
        grouped[heading][name] = kind
    return grouped


def build_link(name: str, kind: Any) -> str:
    """Return the link to the section of a type."""
    if kind in get_args(types.Event):
        return f"events.md#{get_event_type(kind)}"
    return f"#{name.lower()}"


def get_docstring(name: str, kind: Any) -> str:
    return UNIONS.get(name) or get_own_docstring(kind)


def build_section(name: str, kind: Any) -> str:
    """Return the heading of a type, its docstring, and its fields or values."""
    parts = [f"## {name}\n", convert_docstring(get_docstring(name, kind)) + "\n"]
    if isinstance(kind, type):
        parts.append(build_members(kind, name, with_methods=issubclass(kind, Enum)))
    return join_parts(parts)
