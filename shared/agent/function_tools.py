"""Converts a user's typed Python function into a `FunctionTool`. Pydantic builds the schema of
the parameters from the types, and their descriptions come from the docstring.

`check_definition` checks the name, description and schema of a tool, as the model gets them.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

import docstring_parser
from pydantic import TypeAdapter, ValidationError, validate_call
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from handoff_queue.shared.agent.json_schema_validation import BrokenSchema, check_schema
from handoff_queue.shared.agent.tool import (
    CallContext,
    ToolFailed,
    ToolOutput,
    check_parameter_names,
)
from handoff_queue.shared.agent.tool_return_values import convert_output
from handoff_queue.shared.text.unicode_text import has_lone_surrogate
from handoff_queue.shared.types.errors import InvalidTool
from handoff_queue.shared.types.message import describe_problems

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_CONTEXT: ContextVar[CallContext] = ContextVar("call")
"""Context of the call that this thread runs."""
_NOT_AT_THE_TOP = ("allOf", "anyOf", "oneOf")
"""Keywords that the Messages API does not take at the top of a tool's schema."""
MAX_DEFINITION_CHARS = 30_000
"""Characters of a tool's description and schema: about 8,000 tokens, paid in each turn."""


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A tool that is a Python function of this process."""

    name: str
    description: str
    input_schema: dict[str, Any]
    repeatable: bool
    reads_context: bool
    """True if the function has a parameter of the type `CallContext`."""
    function: Callable[..., Any]
    """The function with a validation of its arguments."""

    def call(self, arguments: dict[str, Any], context: CallContext | None) -> ToolOutput:
        """Call the function and return its output.

        Args:
            context: context of the call. None if the function does not read it.

        Raises:
            ToolFailed: the arguments are invalid, the function raised the `ToolError` of
                Anthropic's SDK, or the model cannot see the returned value.
        """
        if context is not None:
            _CONTEXT.set(context)
        try:
            value = self.function(**arguments)
        except ValidationError as error:
            raise ToolFailed(f"{self.name}: {describe_problems(error)}") from error
        except Exception as error:
            if _is_tool_error(error):
                raise ToolFailed(str(error)) from error
            raise
        return convert_output(self.name, value)


def build_function_tool(
    function: Callable[..., Any], *, name: str | None = None, repeatable: bool | None = None
) -> FunctionTool:
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
    signature = _Signature.read(function, name)
    doc = docstring_parser.parse(f"\n{signature.doc}")
    description = "\n\n".join(filter(None, (doc.short_description, doc.long_description)))
    try:
        validated_function = validate_call(signature.build_plain_function(function, name))
        adapter: TypeAdapter[Any] = TypeAdapter(cast(Any, validated_function))
        schema = adapter.json_schema(schema_generator=_create_generator(doc))
    # Pydantic may raise any error for a user's annotations.
    except Exception as error:
        raise InvalidTool(
            f"tool {name}: its parameters cannot be described as JSON ({type(error).__name__}):"
            " use types such as str, int, float, bool, list, dict or a Pydantic model"
        ) from error
    schema.pop("title", None)
    check_definition(name, description, schema)
    if repeatable is None:
        may_repeat = getattr(function, "repeatable", True)
    else:
        may_repeat = repeatable
    return FunctionTool(
        name,
        description,
        schema,
        bool(may_repeat),
        signature.context is not None,
        validated_function,
    )


def _is_tool_error(error: Exception) -> bool:
    """Return whether an exception is the `ToolError` of Anthropic's SDK. The SDK is not
    imported here: it takes seconds of processor time.
    """
    kind = type(error)
    return kind.__name__ == "ToolError" and kind.__module__.startswith("anthropic.")


def _create_generator(doc: docstring_parser.Docstring) -> type[GenerateJsonSchema]:
    """Return a generator of schemas that adds the descriptions of the parameters in a
    docstring.
    """

    class WithDescriptions(GenerateJsonSchema):
        def kw_arguments_schema(
            self,
            arguments: list[core_schema.ArgumentsParameter],
            var_kwargs_schema: CoreSchema | None,
        ) -> JsonSchemaValue:
            schema = super().kw_arguments_schema(arguments, var_kwargs_schema)
            properties = schema.get("properties", {})
            for parameter in doc.params:
                if parameter.arg_name in properties and parameter.description:
                    properties[parameter.arg_name].setdefault("description", parameter.description)
            return schema

    return WithDescriptions


@dataclass(frozen=True, slots=True)
class _Signature:
    """The docstring of a function, and its parameters: from the model, and from the worker."""

    doc: str
    model_parameters: tuple[inspect.Parameter, ...]
    """The parameters that the model fills in, with their types."""
    context: str | None
    """Name of the parameter that gets the `CallContext`, or None."""

    @classmethod
    def read(cls, function: Callable[..., Any], name: str) -> _Signature:
        """Read a function's parameters.

        Raises:
            InvalidTool: a parameter cannot be used.
        """
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidTool(f"tool {name}: must return its result, and not be a generator")
        documented, fixed_names = _unwrap_callable(function)
        doc = inspect.cleandoc(getattr(documented, "__doc__", None) or "")
        if not doc:
            raise InvalidTool(f"tool {name}: needs a docstring; the model chooses tools by it")
        try:
            hints = get_type_hints(documented, include_extras=True)
            parameters = inspect.signature(function).parameters
        except (NameError, TypeError, ValueError, AttributeError) as error:
            raise InvalidTool(
                f"tool {name}: its types cannot be read ({error}): import each type in the file"
            ) from error
        model_parameters, context = [], None
        for parameter in parameters.values():
            if parameter.name in fixed_names:
                continue
            _check_parameter(parameter, hints, name)
            if _is_context(hints[parameter.name]):
                context = parameter.name
            else:
                model_parameters.append(parameter.replace(annotation=hints[parameter.name]))
        return cls(doc, tuple(model_parameters), context)

    def build_plain_function(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Return a function that has only the parameters that the model fills in."""
        signature = inspect.Signature(list(self.model_parameters))

        def wrapper(*arguments: Any, **named_arguments: Any) -> Any:
            values = dict(signature.bind(*arguments, **named_arguments).arguments)
            if self.context is not None:
                values[self.context] = _CONTEXT.get()
            return function(**values)

        wrapper.__name__ = wrapper.__qualname__ = name
        wrapper.__doc__ = self.doc
        annotations: dict[str, Any] = {}
        for parameter in self.model_parameters:
            annotations[parameter.name] = parameter.annotation
        wrapper.__annotations__ = annotations
        vars(wrapper)["__signature__"] = signature
        return wrapper


def _unwrap_callable(function: Callable[..., Any]) -> tuple[Any, frozenset[str]]:
    """Return the function or method that has the docstring and the types of a callable, and
    the parameters that a `functools.partial` has filled in.
    """
    fixed_names = set[str]()
    while isinstance(function, partial) and "__wrapped__" not in vars(function):
        fixed_names |= function.keywords.keys()
        function = function.func
    is_plain = inspect.isroutine(function) or hasattr(function, "__wrapped__")
    return (function if is_plain else type(function).__call__), frozenset(fixed_names)


def _check_parameter(parameter: inspect.Parameter, hints: Mapping[str, Any], name: str) -> None:
    where = f"tool {name}: parameter {parameter.name[:80]}"
    if parameter.kind in (
        parameter.VAR_POSITIONAL,
        parameter.VAR_KEYWORD,
        parameter.POSITIONAL_ONLY,
    ):
        raise InvalidTool(f"{where} must be an ordinary named parameter, without * and /")
    if parameter.name not in hints:
        more = f" ({CallContext.__name__}, if the worker is to fill it in)"
        hint = more if parameter.name == "context" else ""
        raise InvalidTool(f"{where} needs a type{hint}: write one, such as `{parameter.name}: str`")


def _is_context(hint: Any) -> bool:
    """Return whether the worker fills in a parameter of this type: `CallContext`, or
    `CallContext | None`.
    """
    if get_origin(hint) is Union or isinstance(hint, type(int | None)):
        return CallContext in get_args(hint)
    return hint is CallContext


def _check_whole_characters(name: str, text: str) -> None:
    if has_lone_surrogate(text):
        raise InvalidTool(
            f"tool {name}: its docstring or types hold half of a character (a lone surrogate):"
            " write the character itself"
        )


def check_definition(name: str, description: str, schema: Mapping[str, Any]) -> None:
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
            f"tool {name}: a default, an example or a limit of its parameters is not a JSON value"
            f" ({error}): write a finite number, a text, a list or an object"
        ) from error
    if not description.strip():
        raise InvalidTool(
            f"tool {name}: its docstring describes only the parameters; describe the tool, too"
        )
    if len(text) > MAX_DEFINITION_CHARS:
        raise InvalidTool(
            f"tool {name}: its description and schema have {len(text):,} characters; "
            f"shorten them to {MAX_DEFINITION_CHARS:,}, because each turn sends them"
        )
    for keyword in _NOT_AT_THE_TOP:
        if keyword in schema:
            raise InvalidTool(
                f"tool {name}: its schema has {keyword} at the top; use plain parameters"
            )
    check_parameter_names(name, schema)
