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
from docs.generator.annotations import namespace_of, printed_type, public_name
from docs.generator.events import field_table, field_type, shown
from docs.generator.markdown import (
    attribute_docstrings,
    code,
    docstring_of,
    first_sentence,
    joined,
    markdown_of,
    table,
    type_text,
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


def page() -> str:
    """Return the text of the page."""
    parts = [INTRODUCTION]
    groups = GROUPS | TEST_GROUPS
    for heading, names in groups.items():
        rows: list[tuple[str, str]] = []
        for name in names:
            rows.append((f"[`{name}`](#{name.lower()})", first_sentence(text_of(name))))
        parts.append(table([heading, "What it is"], rows))
    for names in groups.values():
        parts += map(section, names)
    return "\n".join(parts)


def public(name: str) -> Any:
    """Return the thing with a public name."""
    if name in testing.__all__:
        return getattr(testing, name)
    return getattr(handoff_queue, name)


def text_of(name: str) -> str:
    """Return the docstring of a public name. An alias of a type has its text in its module."""
    return attribute_docstrings(replies).get(name) or own_docstring(public(name))


def own_docstring(thing: Any) -> str:
    """Return the docstring that was written for a thing, not a generated or inherited one."""
    text = thing.__doc__ or ""
    if isinstance(thing, NewType):
        return new_type_text(thing)
    is_generated = text.startswith(f"{thing.__name__}(")  # by `dataclass`
    if is_generated or (isinstance(thing, type) and is_inherited(text, thing)):
        return ""
    return text


def is_inherited(text: str, kind: type) -> bool:
    """Return whether a base class has this docstring, too."""
    return any(text == base.__doc__ for base in kind.__mro__[1:])


def section(name: str) -> str:
    """Return the heading of a name, its signature, its docstring and its members."""
    thing = public(name)
    parts = [f"## {name}\n"]
    if inspect.isfunction(thing):
        parts.append(signature_block(thing, name))
    if text := text_of(name):
        parts.append(markdown_of(text) + "\n")
    if name in ELSEWHERE:
        parts.append(ELSEWHERE[name])
    elif isinstance(thing, type):
        parts += [base_text(thing), members(thing, name)]
    return joined(parts)


def new_type_text(kind: NewType) -> str:
    meaning = attribute_docstrings(sys.modules[kind.__module__])[kind.__name__]
    return f"{meaning} A `{type_text(kind.__supertype__)}` for type checkers."


def base_text(kind: type) -> str:
    """Name the public base class of an error."""
    if not issubclass(kind, Exception) or kind.__bases__ == (Exception,):
        return ""
    name = kind.__bases__[0].__name__
    if kind.__bases__[0].__module__ == "builtins":
        return f"Base class: `{name}`.\n"
    return f"Base class: [`{name}`](#{name.lower()}).\n"


def members(kind: type, name: str, *, with_methods: bool = True) -> str:
    """Return the values of an enumeration, the fields of a model, and the public methods."""
    parts = []
    if issubclass(kind, Enum):
        texts = attribute_docstrings(kind)
        rows: list[tuple[str, str, str]] = []
        for member in kind:
            meaning = texts.get(member.name, "")
            rows.append((code(f"{name}.{member.name}"), code(repr(member.value)), meaning))
        return table(["Member", "Value", "Meaning"], rows)
    if issubclass(kind, BaseModel):
        excluded = {name for name, field in kind.model_fields.items() if field.exclude}
        parts.append(field_table(kind, hidden=excluded))
    elif dataclasses.is_dataclass(kind):
        parts.append(dataclass_table(kind))
    if with_methods:
        parts += methods(kind, name)
    return "\n".join(parts)


def dataclass_table(kind: Any) -> str:
    texts = attribute_docstrings(kind)
    rows: list[tuple[str, str, str, str]] = []
    for field in dataclasses.fields(kind):
        if not field.name.startswith("_"):
            kind_text = field_type(kind, field.name)
            meaning = texts.get(field.name, "")
            rows.append((code(field.name), kind_text, default_of(field), meaning))
    return table(["Field", "Type", "Default", "Meaning"], rows)


def default_of(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return code(shown(field.default))
    if field.default_factory is not dataclasses.MISSING:
        return code(f"{public_name(field.default_factory)}()")
    return "required"


def methods(kind: type, shown_name: str) -> Iterator[str]:
    """Yield a section for each public method, class method and property that a class defines."""
    for name, member in vars(kind).items():
        if name.startswith("_"):
            continue
        function = getattr(member, "__func__", member)
        heading = f"### {shown_name}.{name}\n\n"
        if isinstance(member, property) and member.fget:
            yield f"{heading}{docstring_of(member)}\n"
        elif inspect.isfunction(function) and function.__doc__:
            block = signature_block(function, name)
            yield f"{heading}{block}\n{docstring_of(function)}\n"


def signature_block(function: Any, name: str) -> str:
    """Return a function's signature as Python, one parameter a line if it is long."""
    signature = inspect.signature(function)
    names = namespace_of(function)
    texts: list[str] = []
    kinds: list[Any] = []
    for parameter in signature.parameters.values():
        if parameter.name not in ("self", "cls"):
            texts.append(parameter_text(parameter, names))
            kinds.append(parameter.kind)
    if KEYWORD_ONLY in kinds and VAR_POSITIONAL not in kinds:
        texts.insert(kinds.index(KEYWORD_ONLY), "*")
    returned = signature.return_annotation
    arrow = ""
    if returned is not inspect.Signature.empty:
        arrow = f" -> {printed_type(returned, names)[0]}"
    prefix = "def"
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        prefix = "async def"
    line = f"{prefix} {name}({', '.join(texts)}){arrow}"
    if len(line) > 100:
        line = f"{prefix} {name}(\n    " + ",\n    ".join(texts) + f",\n){arrow}"
    return f"```text\n{line}\n```\n"


def parameter_text(parameter: inspect.Parameter, names: Mapping[str, Any]) -> str:
    text: str = STARS.get(parameter.kind, "") + parameter.name
    if parameter.annotation is not inspect.Parameter.empty:
        text += f": {printed_type(parameter.annotation, names)[0]}"
    if parameter.default is inspect.Parameter.empty:
        return text
    return f"{text} = {shown_default(parameter.default)}"


def shown_default(value: Any) -> str:
    """Return a default without the address or the fields of an object."""
    if dataclasses.is_dataclass(value):
        return f"{public_name(type(value))}()"
    return shown(value)
