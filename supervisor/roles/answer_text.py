"""Common parts of the roles' answer formats: parsing, names and JSON Schemas."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from pydantic import ValidationError

from handoff_queue.shared.agent.answer_format import InvalidAnswer, LenientAnswer
from handoff_queue.shared.agent.json_repair import describe_text, find_json_object
from handoff_queue.shared.types.message import describe_problems

MAX_ID_CHARS = 48
"""Characters of an id."""
_Answer = TypeVar("_Answer", bound=LenientAnswer)


def parse(kind: type[_Answer], text: str) -> _Answer:
    """Return the answer in a final text.

    Raises:
        InvalidAnswer: the text has no JSON object, or the object does not match the schema.
    """
    value = find_json_object(text)
    if value is None:
        raise InvalidAnswer(
            f"{describe_text(text)} came where one JSON object was expected, and nothing else"
        )
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise InvalidAnswer(
            f"the answer does not match the schema: {describe_problems(error, limit=5)}"
        ) from error


def build_id(text: str) -> str:
    """Return the id for a name that a model wrote: `Step 1: Compare!` -> `step_1_compare`. A
    name that does not begin with a letter gets an `s` in front.
    """
    name = re.sub(r"[^a-z0-9_-]+", "_", text.strip().lower()).strip("_-")
    return (name if name[:1].isalpha() else f"s{name}")[:MAX_ID_CHARS]


def clip(text: str, limit: int) -> str:
    """Return at most `limit` characters of a text without outer spaces. ` ...` marks a cut."""
    text = text.strip()
    if len(text) <= limit:
        return text
    return text[: limit - 4].rstrip() + " ..."


def list_values(kind: type[StrEnum]) -> list[str]:
    """Return the values of an enumeration, for the `enum` of a JSON Schema."""
    return [member.value for member in kind]


def build_object_schema(
    properties: Mapping[str, Any], optional: Collection[str] = ()
) -> dict[str, Any]:
    """Return the JSON Schema of an object that has these properties and no others.

    Args:
        optional: properties that the object may leave out.
    """
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }
