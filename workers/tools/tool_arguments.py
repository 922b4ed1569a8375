"""Arguments of built-in tools as pydantic types. The type gives the schema for the model, and
checks the model's arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from handoff_queue.shared.agent.tool import Tool, ToolContext, ToolFailed, ToolOutput
from handoff_queue.shared.types.message import describe_problems
from handoff_queue.shared.types.origins import Origin


class Arguments(BaseModel):
    """Base class of the arguments of a built-in tool. It accepts "8" for 8, and refuses
    unknown arguments.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


Given = TypeVar("Given", bound=Arguments)


def make_builtin_tool(
    name: str,
    description: str,
    arguments: type[Given],
    run: Callable[[Given, ToolContext], str | ToolOutput],
    *,
    is_lookup: bool = False,
    reads_documents: bool = False,
    origins: tuple[Origin, ...] = (),
) -> Tool:
    """Return a tool whose arguments are checked. It raises `ToolFailed` with the defects of
    invalid arguments.

    Args:
        arguments: type of the arguments.
        run: the function of the tool.
        is_lookup: see `Tool.is_lookup`.
        reads_documents: see `Tool.reads_documents`.
        origins: origins of its results, unless a result names others.
    """

    def check_and_run(values: dict[str, Any], context: ToolContext) -> str | ToolOutput:
        try:
            parsed_arguments = arguments.model_validate(values)
        except ValidationError as error:
            raise ToolFailed(f"{name}: wrong arguments: {describe_problems(error)}") from None
        return run(parsed_arguments, context)

    return Tool(
        name=name,
        description=description,
        input_schema=_build_schema(arguments),
        run=check_and_run,
        is_lookup=is_lookup,
        reads_documents=reads_documents,
        origins=origins,
    )


def _build_schema(arguments: type[Arguments]) -> dict[str, Any]:
    """Return the JSON Schema of the arguments, without titles and docstrings, which do not
    help the model.
    """
    schema = arguments.model_json_schema()
    properties = dict(schema.get("properties", {}))
    for field in properties.values():
        field.pop("title", None)
    return {
        "type": "object",
        "properties": properties,
        "required": schema.get("required", []),
        "additionalProperties": False,
    }
