"""Converts a user's typed Python function into a `Tool`. The SDK's own helper builds the
schema from the signature and the docstring.
"""

from __future__ import annotations

import inspect
import json
import re
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Union, get_args, get_origin, get_type_hints

import anthropic
from anthropic.lib.tools import ToolError
from pydantic import ValidationError

from handoff_queue.shared.agent.schemas import BrokenSchema, check_schema
from handoff_queue.shared.agent.tool import (
    CallContext,
    Tool,
    ToolContext,
    ToolFailed,
    ToolOutput,
    check_parameter_names,
)
from handoff_queue.shared.agent.tool_values import output_of
from handoff_queue.shared.types.characters import has_half_a_character
from handoff_queue.shared.types.errors import InvalidTool
from handoff_queue.shared.types.message import digest_of, problems_of

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NOT_AT_THE_TOP = ("allOf", "anyOf", "oneOf")
"""Keywords that the Messages API does not take at the top of a tool's schema."""
MOST_DEFINITION_CHARS = 30_000
"""Characters of a tool's description and schema: about 8,000 tokens, paid in each turn."""
_CONTEXT: ContextVar[CallContext] = ContextVar("call")
"""Context of the call that this thread runs."""


def tool_from(
    function: Callable[..., Any], *, name: str | None = None, repeatable: bool | None = None
) -> Tool:
    """Return the function as a tool.

    The docstring of the function is the description, and each parameter needs a type. The
    worker fills in a parameter of the type `CallContext`. `output_of` converts the returned
    value into the text that the model sees.

    Args:
        name: name of the tool. None: the name of the function.
        repeatable: False if the tool must not run again after a crash. None: the attribute
            `repeatable` of the function, or True.

    Raises:
        InvalidTool: the function has no docstring, lacks a type, is a generator, or makes a tool
            that the Messages API does not take.
    """
    name = str(name or getattr(function, "__name__", ""))
    if not _NAME.fullmatch(name):
        raise InvalidTool(
            f"tool {name[:80] or repr(function)[:80]}: give it a plain function name of at most 64"
            " letters of English, digits and _"
        )
    signature = _Signature.of(function, name)
    try:
        wrapped = anthropic.beta_tool(signature.plain_function(function, name))
        schema: dict[str, object] = {}
        for key, value in dict(wrapped.input_schema).items():
            if key != "title":
                schema[key] = value
    # Pydantic may raise any error for a user's annotations.
    except Exception as error:
        raise InvalidTool(
            f"tool {name}: its parameters cannot be described as JSON ({type(error).__name__})"
        ) from error
    _check_definition(name, wrapped.description, schema)
    if repeatable is None:
        may_repeat = getattr(function, "repeatable", True)
    else:
        may_repeat = repeatable
    return Tool(
        name=name,
        description=wrapped.description,
        input_schema=schema,
        run=lambda arguments, context: _run(
            wrapped.call, name, arguments, context if signature.context else None
        ),
        repeatable=bool(may_repeat),
        is_source=True,
    )


@dataclass(frozen=True, slots=True)
class _Signature:
    """The docstring of a function, and its parameters: from the model, and from the worker."""

    doc: str
    shown: tuple[inspect.Parameter, ...]
    """The parameters that the model fills in, with their types."""
    context: str | None
    """Name of the parameter that gets the `CallContext`, or None."""

    @classmethod
    def of(cls, function: Callable[..., Any], name: str) -> _Signature:
        """Read a function's parameters.

        Raises:
            InvalidTool: a parameter cannot be used.
        """
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidTool(f"tool {name}: must return its result, and not be a generator")
        described, fixed = _described(function)
        doc = inspect.cleandoc(getattr(described, "__doc__", None) or "")
        if not doc:
            raise InvalidTool(f"tool {name}: needs a docstring; the model chooses tools by it")
        try:
            hints = get_type_hints(described, include_extras=True)
            parameters = inspect.signature(function).parameters
        except (NameError, TypeError, ValueError, AttributeError) as error:
            raise InvalidTool(f"tool {name}: its types cannot be read ({error})") from error
        shown, context = [], None
        for parameter in parameters.values():
            if parameter.name in fixed:
                continue
            _check_parameter(parameter, hints, name)
            if _is_context(hints[parameter.name]):
                context = parameter.name
            else:
                shown.append(parameter.replace(annotation=hints[parameter.name]))
        return cls(doc, tuple(shown), context)

    def plain_function(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Return a function that has only the parameters that the model fills in."""
        signature = inspect.Signature(list(self.shown))

        def called(*arguments: Any, **named: Any) -> Any:
            values = dict(signature.bind(*arguments, **named).arguments)
            if self.context is not None:
                values[self.context] = _CONTEXT.get()
            return function(**values)

        called.__name__ = called.__qualname__ = name
        # The SDK's parser ignores the indentation of the first line, so "Args:" must not be there.
        called.__doc__ = f"\n{self.doc}"
        annotations: dict[str, Any] = {}
        for parameter in self.shown:
            annotations[parameter.name] = parameter.annotation
        called.__annotations__ = annotations
        vars(called)["__signature__"] = signature
        return called


def _described(function: Callable[..., Any]) -> tuple[Any, frozenset[str]]:
    """Return the function or method that has the docstring and the types of a callable, and
    the parameters that a `functools.partial` has filled in.
    """
    fixed = set[str]()
    while isinstance(function, partial) and "__wrapped__" not in vars(function):
        fixed |= function.keywords.keys()
        function = function.func
    is_plain = inspect.isroutine(function) or hasattr(function, "__wrapped__")
    return (function if is_plain else type(function).__call__), frozenset(fixed)


def _check_parameter(parameter: inspect.Parameter, hints: Mapping[str, Any], name: str) -> None:
    where = f"tool {name}: parameter {parameter.name[:80]}"
    if parameter.kind in (
        parameter.VAR_POSITIONAL,
        parameter.VAR_KEYWORD,
        parameter.POSITIONAL_ONLY,
    ):
        raise InvalidTool(f"{where} must be an ordinary named one")
    if parameter.name not in hints:
        more = f" ({CallContext.__name__}, if the worker is to fill it in)"
        raise InvalidTool(f"{where} needs a type{more if parameter.name == 'context' else ''}")


def _is_context(hint: Any) -> bool:
    """Return whether the worker fills in a parameter of this type: `CallContext`, or
    `CallContext | None`.
    """
    if get_origin(hint) is Union or isinstance(hint, type(int | None)):
        return CallContext in get_args(hint)
    return hint is CallContext


def _check_whole_characters(name: str, text: str) -> None:
    if has_half_a_character(text):
        raise InvalidTool(
            f"tool {name}: its docstring or types hold half of a character (a lone surrogate)"
        )


def _check_definition(name: str, description: str, schema: Mapping[str, Any]) -> None:
    """Check a tool, because the Messages API would refuse each request with an invalid one.

    Raises:
        InvalidTool: the tool would be refused.
    """
    try:
        text = json.dumps([description, schema], ensure_ascii=False, allow_nan=False)
        _check_whole_characters(name, text)
        check_schema(schema)
    except BrokenSchema as error:
        raise InvalidTool(f"tool {name}: its schema {error}") from error
    except (TypeError, ValueError) as error:
        raise InvalidTool(
            f"tool {name}: a default, an example or a limit of its parameters is no JSON value"
            f" ({error})"
        ) from error
    if not description.strip():
        raise InvalidTool(
            f"tool {name}: its docstring describes only the parameters; describe the tool, too"
        )
    if len(text) > MOST_DEFINITION_CHARS:
        raise InvalidTool(
            f"tool {name}: its description and schema have {len(text):,} characters; "
            f"at most {MOST_DEFINITION_CHARS:,} are sent with each turn"
        )
    for keyword in _NOT_AT_THE_TOP:
        if keyword in schema:
            raise InvalidTool(
                f"tool {name}: its schema has {keyword} at the top; use plain parameters"
            )
    check_parameter_names(name, schema)


def _run(
    call: Callable[[object], Any], name: str, arguments: dict[str, Any], context: ToolContext | None
) -> ToolOutput:
    """Call the function and return its output.

    Args:
        context: context of the call. None if the function has no `CallContext` parameter, because
            a `CallContext` costs a read from the store.

    Raises:
        ToolFailed: the function raised `ToolError`, the arguments are invalid, or the model cannot
            see the returned value.
    """
    if context is not None:
        _CONTEXT.set(_call_context(name, arguments, context))
    try:
        value = call(arguments)
    except ToolError as error:
        raise ToolFailed(str(error)) from error
    except ValueError as error:
        if isinstance(error.__cause__, ValidationError):
            raise ToolFailed(f"{name}: {problems_of(error.__cause__)}") from error
        raise
    return output_of(name, value)


def _call_context(name: str, arguments: dict[str, Any], context: ToolContext) -> CallContext:
    step_id, _, attempt = context.handoff_id.rpartition(".")
    call = [context.job_id, context.handoff_id, context.call_id, name, arguments]
    return CallContext(
        tenant=context.tenant(),
        job_id=context.job_id,
        handoff_id=context.handoff_id,
        step_id=step_id,
        attempt=int(attempt),
        deadline=datetime.fromtimestamp(time.time() + context.remaining_s(), UTC),
        idempotency_key=digest_of(json.dumps(call, sort_keys=True)),
    )
