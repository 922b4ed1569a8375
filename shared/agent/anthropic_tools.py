"""A user's typed Python function as a `Tool`: its schema comes out of signature and docstring through the SDK's own helper."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from typing import Any, get_type_hints

import anthropic
from anthropic.lib.tools import ToolError
from pydantic import ValidationError

from shared.agent.parameter_names import check_parameter_names
from shared.agent.tool import Tool, ToolFailed
from shared.patterns import UnusablePattern, check_patterns
from shared.wire.errors import InvalidTool
from shared.wire.message import problems_of

_NAME = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")


def tool_from(function: Callable[..., Any], *, repeatable: bool | None = None) -> Tool:
    """The function as a tool of the same name.

    Its docstring is the description; each parameter needs a type. What it returns is sent to the model: text as it is, anything else as
    JSON. An attribute `repeatable = False` on the function (or the argument) says that it must not run again after a crash.

    Raises:
        InvalidTool: no docstring, no types, not callable synchronously, or a name that the provider refuses.
    """
    name = getattr(function, "__name__", "")
    if not _NAME.match(name):
        raise InvalidTool(
            f"tool {name or function!r}: give it a plain function name of letters, digits and _"
        )
    _check(function, name)
    try:
        wrapped = anthropic.beta_tool(function)
        schema = {key: value for key, value in dict(wrapped.input_schema).items() if key != "title"}
    except Exception as error:  # whatever a user's annotations make pydantic raise is about that file, not about us
        raise InvalidTool(
            f"tool {name}: its parameters cannot be described as JSON ({type(error).__name__})"
        ) from error
    check_parameter_names(name, schema)
    try:
        check_patterns(schema)
    except UnusablePattern as error:
        raise InvalidTool(f"tool {name}: {error}") from error
    may_repeat = getattr(function, "repeatable", True) if repeatable is None else repeatable
    return Tool(
        name=name,
        description=wrapped.description,
        input_schema=schema,
        run=lambda arguments, _context: _run(wrapped.call, name, arguments),
        repeatable=bool(may_repeat),
    )


def _check(function: Callable[..., Any], name: str) -> None:
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise InvalidTool(f"tool {name}: must be a plain function, not async and not a generator")
    if not (function.__doc__ or "").strip():
        raise InvalidTool(f"tool {name}: needs a docstring; the model chooses tools by it")
    try:
        hints = get_type_hints(function)
        parameters = inspect.signature(function).parameters
    except (NameError, TypeError, ValueError) as error:
        raise InvalidTool(f"tool {name}: its types cannot be read ({error})") from error
    for parameter in parameters.values():
        if parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
            parameter.POSITIONAL_ONLY,
        ):
            raise InvalidTool(
                f"tool {name}: parameter {parameter.name} must be an ordinary named one"
            )
        if parameter.name not in hints:
            raise InvalidTool(f"tool {name}: parameter {parameter.name} needs a type")


def _run(call: Callable[[object], Any], name: str, arguments: dict[str, Any]) -> str:
    try:
        value = call(arguments)
    except ToolError as error:
        raise ToolFailed(str(error)) from error
    except ValueError as error:
        if isinstance(error.__cause__, ValidationError):
            raise ToolFailed(f"{name}: {problems_of(error.__cause__)}") from error
        raise
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
