"""JSON out of a model's final text, however it is wrapped: bare, fenced, amid prose, or cut off. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic_core import from_json

from shared.agent.strict_json import STRICT
from shared.wire.characters import all_in_whole_characters

_FENCE = re.compile(r"```[a-zA-Z]*[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)
_LEAD = re.compile(r"\s*(?:```[a-zA-Z]*\s*)?")
_HALF = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
"""Where half of a surrogate pair may stand, as JSON spells it or as it is; most answers have none, and need not be gone through for it."""
_MOST_STARTS = 200
"""Opening braces that are tried, so that a text of nothing but braces takes no quadratic time."""


class Lenient(BaseModel):
    """An answer as it came: unknown fields are ignored, numbers and strings may stand for each other."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", coerce_numbers_to_str=True, hide_input_in_errors=True
    )


def json_object_in(text: str) -> dict[str, Any] | None:
    """The one JSON object of a final text: the whole of it, what a fence holds, or the largest object amid prose."""
    whole = next((value for value in _values(text) if isinstance(value, dict)), None)
    return _largest_object(text) if whole is None else whole


def what_came(text: str) -> str:
    """What a final text is that holds no JSON object, in words; nothing of what it says."""
    value = next((value for value in _values(text) if value is not None), None)
    if value is not None:
        return "a JSON list" if isinstance(value, list) else "a JSON value that is no object"
    return (
        "JSON that is broken or cut off"
        if text[_beginning(text) :][:1] in ("{", "[")
        else f"plain text ({len(text.strip()):,} characters)"
    )


def partial_object_in(text: str) -> dict[str, Any] | None:
    """What there is of a JSON object that was cut off."""
    start = text.find("{")
    if start < 0:
        return None
    try:
        value = from_json(text[start:], allow_partial="trailing-strings")
    except (ValueError, RecursionError):
        return None
    return _whole(value, text) if isinstance(value, dict) else None


def draft_in(text: str) -> str:
    """The `output` so far of an answer envelope that is being written; empty before it begins."""
    value = (
        (partial_object_in(text) or {}).get("output")
        if text.lstrip().startswith(("{", "```"))
        else None
    )
    return value if isinstance(value, str) else ""


def _whole(value: Any, text: str) -> Any:
    """The value that the text holds, without lone surrogates, which JSON can spell but no UTF-8 text can hold."""
    return all_in_whole_characters(value) if _HALF.search(text) else value


def _values(text: str) -> Iterator[Any]:
    """The text as JSON, then what each of its fences holds; None for what is none."""
    yield _parsed(text.strip())
    yield from (_parsed(match.group(1).strip()) for match in _FENCE.finditer(text))


def _parsed(text: str) -> Any:
    try:
        return _whole(STRICT.decode(text), text)
    except (ValueError, RecursionError):
        return None


def _beginning(text: str) -> int:
    """Where the text begins, after white space and the opening of a fence."""
    match = _LEAD.match(text)
    return match.end() if match else 0


def _largest_object(text: str) -> dict[str, Any] | None:
    """The largest of the whole objects; none if the text is itself an object that was cut off: what stands inside is not the answer."""
    best: tuple[int, dict[str, Any]] | None = None
    position = text.find("{")
    begins = _beginning(text)
    for _ in range(_MOST_STARTS):
        if position < 0:
            break
        try:
            value, end = STRICT.raw_decode(text, position)
        except (ValueError, RecursionError):
            if position == begins:
                return None
            value, end = None, position + 1
        if isinstance(value, dict) and (best is None or end - position > best[0]):
            best = (end - position, value)
        position = text.find("{", end)
    return _whole(best[1], text) if best else None
