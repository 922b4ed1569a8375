"""Arguments of a built-in tool as a pydantic type, which gives the schema for the model and the
check of the model's arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from handoff_queue.shared.agent.tool import Tool, ToolContext, ToolFailed
from handoff_queue.shared.types.message import problems_of


class Arguments(BaseModel):
    """Lenient where models are sloppy ("8" for 8), closed to arguments that do not exist."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


Given = TypeVar("Given", bound=Arguments)


def make_builtin_tool(
    name: str, description: str, arguments: type[Given], run: Callable[[Given, ToolContext], str]
) -> Tool:
    """Return a tool made from its parts. Invalid arguments become a `ToolFailed` that names the
    faults.
    """

    def checked(given: dict[str, Any], context: ToolContext) -> str:
        try:
            parsed = arguments.model_validate(given)
        except ValidationError as error:
            raise ToolFailed(f"{name}: wrong arguments: {problems_of(error)}") from None
        return run(parsed, context)

    return Tool(name=name, description=description, input_schema=_schema_of(arguments), run=checked)


def _schema_of(arguments: type[Arguments]) -> dict[str, Any]:
    """Return the schema without pydantic's titles and our docstrings, which tell a model nothing."""
    schema = arguments.model_json_schema()
    fields: dict[Any, dict[Any, Any]] = {}
    for name, field in schema.get("properties", {}).items():
        fields[name] = {key: value for key, value in field.items() if key != "title"}
    return {
        "type": "object",
        "properties": fields,
        "required": schema.get("required", []),
        "additionalProperties": False,
    }
