"""Common parts of the roles' answer formats: parsing, and the forms of names."""

from __future__ import annotations

import re
from typing import TypeVar

from pydantic import ValidationError

from handoff_queue.shared.agent.answer_format import InvalidAnswer
from handoff_queue.shared.agent.json_answers import LenientAnswer, json_object_in, what_came
from handoff_queue.shared.types.message import problems_of

LONGEST_NAME = 48
_Answer = TypeVar("_Answer", bound=LenientAnswer)


def parse(kind: type[_Answer], text: str) -> _Answer:
    """Return the answer in a final text.

    Raises:
        InvalidAnswer: no JSON object, or its fields are not those in the schema.
    """
    value = json_object_in(text)
    if value is None:
        raise InvalidAnswer(
            f"{what_came(text)} came where one JSON object was expected, and nothing else"
        )
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise InvalidAnswer(
            f"the answer does not match the schema: {problems_of(error, most=5)}"
        ) from error


def name_of(text: str) -> str:
    """Return a name as an id: `Step 1: Compare!` -> `step_1_compare`. Ids are read leniently, and
    the same way everywhere.
    """
    name = re.sub(r"[^a-z0-9_-]+", "_", text.strip().lower()).strip("_-")
    return (name if name[:1].isalpha() else f"s{name}")[:LONGEST_NAME]


def clip(text: str, most: int) -> str:
    """Return at most this many characters, with a mark if some are missing."""
    text = text.strip()
    if len(text) <= most:
        return text
    return text[: most - 4].rstrip() + " ..."
