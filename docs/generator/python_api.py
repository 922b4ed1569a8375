"""The page of the Python API, from the docstrings of the public names."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, NewType

from pydantic import BaseModel

import handoff_queue
from docs.generator.annotations import format_type, get_namespace, get_public_name
from docs.generator.events import build_field_table, format_default, format_field_type
from docs.generator.markdown import (
    build_table,
    convert_docstring,
    format_annotation,
    format_code,
    get_docstring,
    get_first_sentence,
    join_parts,
    read_attribute_docstrings,
)
from handoff_queue import testing
from handoff_queue.testing import replies

KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY
VAR_POSITIONAL = inspect.Parameter.VAR_POSITIONAL
STARS: dict[Any, str] = {VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
"""Kind of a parameter -> the stars before its name."""

INTRODUCTION = """\
# Python API

Import a name from `handoff_queue`, and a name for tests from `handoff_queue.testing`. [Types of fields](field-types.md) are in
`handoff_queue.types`. All other names and modules are private and may change. [Python](../get-started/python.md) is a first program, and [Test your specialists](../how-to/test-specialists.md) is a first test.
"""  # noqa: E501 - lines of a text
GROUPS = {
    "Clients": ["connect", "Client", "connect_async", "AsyncClient"],
    "Requests": [
        "Request", "Limits", "NewLimits", "OnLimit", "Mode", "Priority", "Approvals",
        "ApprovalOf", "OnTimeout", "Gates", "FactTable", "KnownFact", "ForkOptions",
        "read_facts", "Rubric", "Criterion", "Workflow", "read_workflow", "Items", "read_items",
        "Clash", "FolderReading", "Settings",
    ],
    "Results": [
        "JobResult", "HandoffReport", "JobOutline", "JobInfo", "JobStatus", "JobFilter",
        "Row", "Note", "Export", "RecordedEvent", "JobEnded", "SentMessage",
        "TenantDeletion", "DeadLetter", "JobId", "HandoffId", "Usage", "Citation",
    ],
    "Schedules": ["ScheduleOptions", "Overlap", "Missed", "ScheduleStatus"],
    "Tokens and audit": ["Actor", "AuditEntry", "AuditAction", "ApiToken", "AccessLevel"],
    "Tools": ["tool", "CallContext", "ToolFailed"],
    "Errors": [
        "HandoffError", "UserError", "UnknownJob", "UnknownSchedule", "ScheduleExists", "Conflict",
        "BudgetSpent", "TooManyOpenJobs", "InvalidDocuments",
        "StoreError", "StoreUnavailable",
    ],
}  # fmt: skip
"""Heading of the page -> names of `handoff_queue`."""
ELSEWHERE = {"Settings": "[Settings](settings.md) lists its fields.\n"}
"""Name of a class -> the page with its fields."""
TEST_GROUPS = {
    "Tests": ["running_system", "RunningSystem", "MessagesServer", "BrokenRules"],
    "Replies of the model in a test": [
        "Reply", "Script", "Json", "result_reply", "specialist_result", "claim", "text_reply",
        "json_reply", "tool_call_reply",
        "error_reply", "in_turn", "first_message_text", "answer_properties",
    ],
}  # fmt: skip
"""Heading of the page -> names of `handoff_queue.testing`."""


def build_page() -> str:
    """Return the text of the page."""
    parts = [INTRODUCTION]
    groups = GROUPS | TEST_GROUPS
    for heading, names in groups.items():
        rows: list[tuple[str, str]] = []
        for name in names:
            rows.append((f"[`{name}`](#{name.lower()})", get_first_sentence(get_text(name))))
        parts.append(build_table([heading, "What it is"], rows))
    for names in groups.values():
        parts += map(build_section, names)
    return "\n".join(parts)


def get_public(name: str) -> Any:
    """Return the thing with a public name."""
    if name in testing.__all__:
        return getattr(testing, name)
    return getattr(handoff_queue, name)


def get_text(name: str) -> str:
    """Return the docstring of a public name. An alias of a type has its text in its module."""
    return read_attribute_docstrings(replies).get(name) or get_own_docstring(get_public(name))


def get_own_docstring(thing: Any) -> str:
    """Return the docstring that was written for a thing, not a generated or inherited one."""
    text = thing.__doc__ or ""
    if isinstance(thing, NewType):
        return describe_new_type(thing)
    is_generated = text.startswith(f"{thing.__name__}(")  # by `dataclass`
    if is_generated or (isinstance(thing, type) and is_inherited(text, thing)):
        return ""
    return text


def is_inherited(text: str, kind: type) -> bool:
    """Return whether a base class has this docstring, too."""
    return any(text == base.__doc__ for base in kind.__mro__[1:])


def build_section(name: str) -> str:
    """Return the heading of a name, its signature, its docstring and its members."""
    thing = get_public(name)
    parts = [f"## {name}\n"]
    if inspect.isfunction(thing):
        parts.append(format_signature(thing, name))
    if text := get_text(name):
        parts.append(convert_docstring(text) + "\n")
    if name in ELSEWHERE:
        parts.append(ELSEWHERE[name])
    elif isinstance(thing, type):
        parts += [describe_base(thing), build_members(thing, name)]
    return join_parts(parts)


def describe_new_type(kind: NewType) -> str:
    meaning = read_attribute_docstrings(sys.modules[kind.__module__])[kind.__name__]
    return f"{meaning} A `{format_annotation(kind.__supertype__)}` for type checkers."


def describe_base(kind: type) -> str:
    """Name the public base class of an error."""
    if not issubclass(kind, Exception) or kind.__bases__ == (Exception,):
        return ""
    name = kind.__bases__[0].__name__
    if kind.__bases__[0].__module__ == "builtins":
        return f"Base class: `{name}`.\n"
    return f"Base class: [`{name}`](#{name.lower()}).\n"


def build_members(kind: type, name: str, *, with_methods: bool = True) -> str:
    """Return the values of an enumeration, the fields of a model, and the public methods."""
    parts = []
    if issubclass(kind, Enum):
        texts = read_attribute_docstrings(kind)
        rows: list[tuple[str, str, str]] = []
        for member in kind:
            meaning = texts.get(member.name, "")
            rows.append(
                (format_code(f"{name}.{member.name}"), format_code(repr(member.value)), meaning)
            )
        return build_table(["Member", "Value", "Meaning"], rows)
    if issubclass(kind, BaseModel):
        excluded = {name for name, field in kind.model_fields.items() if field.exclude}
        parts.append(build_field_table(kind, hidden=excluded))
    elif dataclasses.is_dataclass(kind):
        parts.append(build_dataclass_table(kind))
    if with_methods:
        parts += iterate_methods(kind, name)
    return "\n".join(parts)


def build_dataclass_table(kind: Any) -> str:
    texts = read_attribute_docstrings(kind)
    rows: list[tuple[str, str, str, str]] = []
    for field in dataclasses.fields(kind):
        if not field.name.startswith("_"):
            kind_text = format_field_type(kind, field.name)
            meaning = texts.get(field.name, "")
            rows.append((format_code(field.name), kind_text, format_field_default(field), meaning))
    return build_table(["Field", "Type", "Default", "Meaning"], rows)


def format_field_default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return format_code(format_default(field.default))
    if field.default_factory is not dataclasses.MISSING:
        return format_code(f"{get_public_name(field.default_factory)}()")
    return "required"


def iterate_methods(kind: type, shown_name: str) -> Iterator[str]:
    """Yield a section for each public method, class method and property that a class defines."""
    for name, member in vars(kind).items():
        if name.startswith("_"):
            continue
        function = getattr(member, "__func__", member)
        heading = f"### {shown_name}.{name}\n\n"
        if isinstance(member, property) and member.fget:
            yield f"{heading}{get_docstring(member)}\n"
        elif inspect.isfunction(function) and function.__doc__:
            block = format_signature(function, name)
            yield f"{heading}{block}\n{get_docstring(function)}\n"


def format_signature(function: Any, name: str) -> str:
    """Return a function's signature as Python, one parameter a line if it is long."""
    signature = inspect.signature(function)
    names = get_namespace(function)
    texts: list[str] = []
    kinds: list[Any] = []
    for parameter in signature.parameters.values():
        if parameter.name not in ("self", "cls"):
            texts.append(format_parameter(parameter, names))
            kinds.append(parameter.kind)
    if KEYWORD_ONLY in kinds and VAR_POSITIONAL not in kinds:
        texts.insert(kinds.index(KEYWORD_ONLY), "*")
    returned = signature.return_annotation
    arrow = ""
    if returned is not inspect.Signature.empty:
        arrow = f" -> {format_type(returned, names)[0]}"
    prefix = "def"
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        prefix = "async def"
    line = f"{prefix} {name}({', '.join(texts)}){arrow}"
    if len(line) > 100:
        line = f"{prefix} {name}(\n    " + ",\n    ".join(texts) + f",\n){arrow}"
    return f"```text\n{line}\n```\n"


def format_parameter(parameter: inspect.Parameter, names: Mapping[str, Any]) -> str:
    text: str = STARS.get(parameter.kind, "") + parameter.name
    if parameter.annotation is not inspect.Parameter.empty:
        text += f": {format_type(parameter.annotation, names)[0]}"
    if parameter.default is inspect.Parameter.empty:
        return text
    return f"{text} = {format_parameter_default(parameter.default)}"


def format_parameter_default(value: Any) -> str:
    """Return a default without the address or the fields of an object."""
    if dataclasses.is_dataclass(value):
        return f"{get_public_name(type(value))}()"
    return format_default(value)
