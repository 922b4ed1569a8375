"""JSON out of a model's final text: bare, fenced, amid prose, cut off, or with the usual mistakes. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import from_json

from handoff_queue.shared.agent.json_repair import repaired_json
from handoff_queue.shared.types.characters import all_in_whole_characters
from handoff_queue.shared.types.json_values import check_depth, check_storable
from handoff_queue.shared.types.strict_json import STRICT

_FENCE = re.compile(r"```[a-zA-Z]*[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)
_LEAD = re.compile(r"\s*(?:```[a-zA-Z]*\s*)?")
_HALF = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
"""Where half of a surrogate pair may stand, as JSON spells it or as it is; most answers have none, and need not be gone through for it."""
_CAMEL = re.compile(r"([a-z])([A-Z])")
_AROUND_A_WORD = " \t\r\n.!,:;*_`'\""
"""Punctuation, quotes and Markdown that models put around the word of an enumeration."""
_MOST_STARTS = 200
"""Opening braces that are tried, so that a text of nothing but braces takes no quadratic time."""
_MOST_REPAIRED_STARTS = 20
"""Opening braces from which a repair is tried, for the same reason."""


class Lenient(BaseModel):
    """An answer as it came.

    Unknown fields are ignored. Numbers and strings may stand for each other. `null` in an optional field means that the model did not
    give the field. The words of an enumeration may be in another case.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        coerce_numbers_to_str=True,
        hide_input_in_errors=True,
        allow_inf_nan=False,
    )

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        given = {
            name: value
            for name, value in values.items()
            if value is not None
            or name not in cls.model_fields
            or cls.model_fields[name].is_required()
        }
        for name, field in cls.model_fields.items():
            if name in given:
                given[name] = _word_of(given[name], field.annotation)
        return given


def _word_of(value: Any, kind: Any) -> Any:
    """Return the word of an enumeration that differs from the value only in case, spaces and hyphens; else the value."""
    if not isinstance(value, str) or not isinstance(kind, type) or not issubclass(kind, StrEnum):
        return value
    words = {folded_word(word.value): word.value for word in kind}
    return words.get(folded_word(value), value)


def folded_word(word: str) -> str:
    """Return `needs_input` for `Needs input.`, `needsInput` and `**needs-input**`."""
    words = _CAMEL.sub(r"\1_\2", word.strip(_AROUND_A_WORD))
    return re.sub(r"[\s_-]+", "_", words.lower())


def json_object_in(text: str) -> dict[str, Any] | None:
    """Return the one JSON object of a final text: the whole text, the content of a fence, or the largest object amid prose.

    Raw line breaks and lone backslashes in strings, and commas before a closing bracket, are repaired.
    """
    begins = _beginning(text)
    if text[begins:].startswith("{") and (whole := _object_at(text, begins)) is not None:
        value, end = whole
        if not text[end:].strip(" \t\r\n`"):
            return _whole(value, text)
    fenced = (match.group(1) for match in _FENCE.finditer(text))
    for part in fenced:
        start = len(part) - len(part.lstrip())
        if (inside := _object_at(part, start)) is not None and not part[inside[1] :].strip():
            return _whole(inside[0], text)
    return _largest_object(text)


def without_nulls(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    """Return the value without `null` in the properties that its schema does not require: the model did not give them.

    Args:
        value: What the model gave.
        schema: The schema of the value. Only properties, items and references to `$defs` are followed.
        root: The schema that holds the `$defs`.
    """
    reference = str(schema.get("$ref", ""))
    if reference.startswith("#/$defs/"):
        schema = root.get("$defs", {}).get(reference.removeprefix("#/$defs/"), {})
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [without_nulls(item, schema["items"], root) for item in value]
    properties = schema.get("properties")
    if not isinstance(value, dict) or not isinstance(properties, dict):
        return value
    optional = properties.keys() - set(schema.get("required", ()))
    given = {name: item for name, item in value.items() if item is not None or name not in optional}
    for name, item in given.items():
        if isinstance(properties.get(name), dict):
            given[name] = without_nulls(item, properties[name], root)
    return given


def what_came(text: str) -> str:
    """Describe a final text without a JSON object. The description quotes no text of the model, and at most 20 characters of a number."""
    value = next((value for value in _values(text) if value is not None), None)
    if value is not None:
        return "a JSON list" if isinstance(value, list) else "a JSON value that is no object"
    begins = _beginning(text)
    if text[begins : begins + 1] not in ("{", "["):
        return f"plain text ({len(text.strip()):,} characters)"
    try:
        STRICT.raw_decode(text, begins)
    except json.JSONDecodeError:
        pass
    except ValueError as error:
        return f"JSON that cannot be stored ({error})"
    return "JSON that is broken or cut off"


def partial_object_in(text: str) -> dict[str, Any] | None:
    """Return the readable part of a JSON object that was cut off."""
    start = text.find("{")
    if start < 0:
        return None
    repaired, _ = repaired_json(text, start)
    try:
        value = from_json(repaired, allow_partial="trailing-strings", allow_inf_nan=False)
        check_depth(value)
        value = _whole(value, text)
        check_storable(value)  # from_json reads 1e999 as infinity
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def draft_in(text: str) -> str:
    """The `output` so far of an answer envelope that is being written; empty before it begins."""
    value = (
        (partial_object_in(text) or {}).get("output")
        if text.lstrip().startswith(("{", "```"))
        else None
    )
    return value if isinstance(value, str) else ""


_Value = TypeVar("_Value")


def _whole(value: _Value, text: str) -> _Value:
    """The value that the text holds, without lone surrogates, which JSON can spell but no UTF-8 text can hold."""
    if not _HALF.search(text):
        return value
    return cast(_Value, all_in_whole_characters(value))


def _values(text: str) -> Iterator[Any]:
    """The text as JSON, then what each of its fences holds; None for what is none."""
    yield _parsed(text.strip())
    yield from (_parsed(match.group(1).strip()) for match in _FENCE.finditer(text))


def _parsed(text: str) -> Any:
    try:
        return _whole(STRICT.decode(text), text)
    except ValueError:
        return None


def _beginning(text: str) -> int:
    """Where the text begins, after white space and the opening of a fence."""
    match = _LEAD.match(text)
    return match.end() if match else 0


def _object_at(
    text: str, start: int, *, may_repair: bool = True
) -> tuple[dict[str, Any], int] | None:
    """Return the object that begins at this place, repaired if need be, and the place behind it."""
    if not text.startswith("{", start):
        return None
    try:
        value, end = STRICT.raw_decode(text, start)
    except json.JSONDecodeError:
        if not may_repair:
            return None
        for ends_in_backslash in (False, True):
            repaired, behind = repaired_json(text, start, ends_in_backslash=ends_in_backslash)
            value = None if behind is None else _parsed(repaired)
            if isinstance(value, dict) and behind is not None:
                return value, behind
        return None
    except ValueError:
        return None
    return (value, end) if isinstance(value, dict) else None


def _largest_object(text: str) -> dict[str, Any] | None:
    """Return the largest whole object. Return None if the text itself is an object that was cut off."""
    best: tuple[int, dict[str, Any]] | None = None
    position = text.find("{")
    begins = _beginning(text)
    repairs = _MOST_REPAIRED_STARTS
    for _ in range(_MOST_STARTS):
        if position < 0:
            break
        found = _object_at(text, position, may_repair=repairs > 0)
        if found is None:
            if position == begins:
                return None
            repairs -= 1
            position = text.find("{", position + 1)
            continue
        value, behind = found
        if best is None or behind - position > best[0]:
            best = (behind - position, value)
        position = text.find("{", behind)
    return _whole(best[1], text) if best else None
