"""Functions that find, repair and complete the JSON in a model's reply.

The library json-repair is not used. It also makes objects of prose, unclosed brackets and bare
words, so that an answer that was cut off would look whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Set
from enum import StrEnum
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, JsonValue, model_validator
from pydantic_core import from_json

from handoff_queue.shared.text.unicode_text import replace_all_lone_surrogates
from handoff_queue.shared.types.json_values import STRICT, check_depth, check_storable

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[{}\[\]]|,(?=\s*[}\]])', re.DOTALL)
"""A string (to the end of the text if it is not closed), a bracket, or a comma before a
closing bracket.
"""
_TOKEN_ENDING_IN_A_BACKSLASH = re.compile(
    r'"(?:[^"\\]|\\"(?!\s*(?:,\s*["{\[]|[}\]:]))|\\[^"])*+(?:"|(?P<lone>\\")|\\?\Z)|[{}\[\]]|,(?=\s*[}\]])',
    re.DOTALL,
)
"""A string token that may end in a backslash: a backslash and a quote end the string if the
next characters can only follow a string.

Example: `"C:\\dir\\", "claims": ...`.
"""
_UNESCAPED = re.compile(
    r'\\(?:u[0-9a-fA-F]{0,3})?\Z|[\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}|)', re.DOTALL
)
"""Part of a string: an escape that the end of the text cuts, a control character, or a
backslash with its escape, if any.
"""


def repair_json(
    text: str, start: int, *, ends_in_backslash: bool = False
) -> tuple[str, int | None]:
    """Repair the JSON object or list that begins at `start`.

    Control characters in strings (line breaks, tabs) and backslashes that escape nothing are
    escaped. Commas before a closing bracket are dropped.

    Args:
        text: text that contains the value.
        start: index of the value's first bracket.
        ends_in_backslash: True if a string may end in a lone backslash. JSON would read that
            backslash and the quote after it as a quote within the string.

    Returns:
        The repaired value and the index after it in `text`. If the value is not closed, the
        index is None and the whole rest of the text is repaired.
    """
    if ends_in_backslash:
        pattern = _TOKEN_ENDING_IN_A_BACKSLASH
    else:
        pattern = _TOKEN
    pieces: list[str] = []
    depth, position = 0, start
    for match in pattern.finditer(text, start):
        part = match.group()
        pieces.append(text[position : match.start()])
        position = match.end()
        if ends_in_backslash and match.group("lone"):
            part = f'{part[:-2]}\\\\"'
        if part == ",":
            continue
        pieces.append(_UNESCAPED.sub(_escape_match, part) if part.startswith('"') else part)
        depth += (part in "{[") - (part in "}]")
        if depth == 0:
            return "".join(pieces), position
    pieces.append(text[position:])
    return "".join(pieces), None


def _escape_match(match: re.Match[str]) -> str:
    escape = match.group()
    if escape.startswith("\\") and match.end() == len(match.string):
        return ""
    if len(escape) > 1:
        return escape
    if escape == "\\":
        return "\\\\"
    return f"\\u{ord(escape):04x}"


_DOTS = frozenset({"...", "…"})


def is_empty_form(output: JsonValue, schema: Mapping[str, Any]) -> bool:
    """Return whether an object or a list says nothing. It then has texts, and each text is
    blank or a word of its schema. Every other value is null, false or 0.

    An output without any text (`{"matches": []}`, `{"count": 0}`) may be the answer, so it is
    not an empty form. An output that is a text or a number is not one either.
    """
    return isinstance(output, dict | list) and has_no_content(output, own_words(schema))


def has_no_content(output: JsonValue, words: Set[str]) -> bool:
    """Return whether an output says nothing, as `is_empty_form`. `words`: `own_words`."""
    has_text = False
    for leaf in _leaves(output):
        if isinstance(leaf, str):
            has_text = True
            text = _normalize_case_and_spaces(leaf)
            if text and text not in words:
                return False
        elif leaf:
            return False
    return has_text


def _leaves(value: JsonValue) -> Iterator[JsonValue]:
    """Yield the texts, numbers, booleans and nulls in a JSON value, in no particular order."""
    left = [value]
    while left:
        match left.pop():
            case dict() as container:
                left += container.values()
            case list() as container:
                left += container
            case leaf:
                yield leaf


def own_words(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of types and properties, the titles and the descriptions in a schema,
    and "...". The values of `const` and `enum` are left out: they may be answers.
    """
    words, choices, left = set(_DOTS), set[str](), list[Any]([schema])
    while left:
        part = left.pop()
        if isinstance(part, Mapping):
            for key in ("type", "title", "description"):
                if isinstance(part.get(key), str):
                    words.add(_normalize_case_and_spaces(part[key]))
            for name in part.get("properties") or ():
                if isinstance(name, str):
                    words.add(_normalize_case_and_spaces(name))
            offered = [
                part.get("const"),
                *(part["enum"] if isinstance(part.get("enum"), list) else ()),
            ]
            for value in offered:
                if isinstance(value, str):
                    choices.add(_normalize_case_and_spaces(value))
            left += part.values()
        elif isinstance(part, list):
            left += part
    return frozenset(words - choices)


def _normalize_case_and_spaces(text: str) -> str:
    return " ".join(text.lower().split())


_FENCE = re.compile(r"```[a-zA-Z]*[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)
_LEAD = re.compile(r"\s*(?:```[a-zA-Z]*\s*)?")
_HALF = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
"""A surrogate as a JSON escape or as a character. Most answers have none, so they need no
search for lone surrogates.
"""
_CAMEL = re.compile(r"([a-z])([A-Z])")
_AROUND_A_WORD = " \t\r\n.!,:;*_`'\""
"""Punctuation, quotes and Markdown that models put around the word of an enumeration."""
_MAX_STARTS = 200
"""Opening braces at which an object is searched. Without a limit, a text of nothing but braces
would need quadratic time.
"""
_MAX_REPAIRED_STARTS = 20
"""Opening braces at which a repair is tried, for the same reason."""


class LenientAnswer(BaseModel):
    """Base class of answers that accepts small deviations from their schema.

    Unknown fields are ignored. A number may stand for a string, and a string for a number.
    `null` in an optional field means that the model did not give the field. The words of an
    enumeration may differ in case, spaces and hyphens.
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
    def _normalize(cls, values: Any) -> Any:
        """Drop nulls from optional fields, and correct the words of enumerations."""
        if not isinstance(values, dict):
            return values
        normalized: dict[Any, Any] = {}
        for name, value in values.items():
            field = cls.model_fields.get(name)
            if field is None:
                normalized[name] = value
            elif value is not None or field.is_required():
                normalized[name] = _word_of(value, field.annotation)
        return normalized


def _word_of(value: Any, kind: Any) -> Any:
    """Return the word of the enumeration `kind` that equals the value after
    `normalize_status`. If there is none, or `kind` is not an enumeration, return the value.
    """
    if not isinstance(value, str) or not isinstance(kind, type) or not issubclass(kind, StrEnum):
        return value
    if value in list(kind):
        return value
    words: dict[str, str] = {}
    for word in kind:
        words[normalize_status(word.value)] = word.value
    return words.get(normalize_status(value), value)


def normalize_status(word: str) -> str:
    """Return `needs_input` for `Needs input.`, `needsInput` and `**needs-input**`."""
    words = _CAMEL.sub(r"\1_\2", word.strip(_AROUND_A_WORD))
    return re.sub(r"[\s_-]+", "_", words.lower())


def json_object_in(text: str) -> dict[str, Any] | None:
    """Return the JSON object of a final text: the whole text, the content of a code fence, or
    the largest object within prose. None: there is no whole object.

    Raw line breaks and lone backslashes in strings, and commas before a closing bracket, are
    repaired.
    """
    whole = whole_object_in(text)
    if whole is not None:
        return whole
    for match in _FENCE.finditer(text):
        part = match.group(1)
        start = len(part) - len(part.lstrip())
        inside = _object_at(part, start)
        if inside is None:
            continue
        value, end = inside
        if not part[end:].strip():
            return _whole(value, text)
    return _largest_object(text)


def whole_object_in(text: str) -> dict[str, Any] | None:
    """Return the JSON object that is the whole text, also in a code fence, or None."""
    start = _beginning(text)
    if not text.startswith("{", start):
        return None
    whole = _object_at(text, start)
    if whole is None:
        return None
    value, end = whole
    if text[end:].strip(" \t\r\n`"):
        return None
    return _whole(value, text)


def first_object_in(text: str) -> dict[str, Any] | None:
    """Return the JSON object with which a text begins, also in a code fence. None: there is no
    whole object. Nothing is repaired.
    """
    first = _object_at(text, _beginning(text), may_repair=False)
    return first and first[0]


def without_nulls(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    """Return the value without the properties that are null and that its schema does not
    require.

    Args:
        value: JSON value of the model.
        schema: schema of the value. Only `properties`, `items` and references to `$defs` are
            followed.
        root: schema with the `$defs`.
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
    cleaned: dict[Any, Any] = {}
    for name, item in value.items():
        if item is None and name in optional:
            continue
        if isinstance(properties.get(name), dict):
            cleaned[name] = without_nulls(item, properties[name], root)
        else:
            cleaned[name] = item
    return cleaned


def describe_text(text: str) -> str:
    """Describe a final text that is not a JSON object, for the error message. The description
    quotes no text of the model, and at most 20 characters of a number.
    """
    for value in _values(text):
        if isinstance(value, list):
            return "a JSON list"
        if value is not None:
            return "a JSON value that is not an object"
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
    """Return the readable part of a JSON object that was cut off, or None if there is no such
    part. The object begins at the first brace of the text.
    """
    start = text.find("{")
    if start < 0:
        return None
    repaired, _ = repair_json(text, start)
    try:
        value = from_json(repaired, allow_partial="trailing-strings", allow_inf_nan=False)
        check_depth(value)
        value = _whole(value, text)
        check_storable(value)  # from_json reads 1e999 as infinity
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict):
        return value
    return None


def draft_in(text: str) -> str:
    """Return the text of `output` in an unfinished answer envelope, or "" if there is none yet."""
    value = None
    if text.lstrip().startswith(("{", "```")):
        value = (partial_object_in(text) or {}).get("output")
    if isinstance(value, str):
        return value
    return ""


_Value = TypeVar("_Value")


def _whole(value: _Value, text: str) -> _Value:
    """Return the value, parsed from `text`, without lone surrogates. JSON can write them, and
    UTF-8 cannot.
    """
    if not _HALF.search(text):
        return value
    return cast(_Value, replace_all_lone_surrogates(value))


def _values(text: str) -> Iterator[Any]:
    """Yield the JSON value of the whole text, and then of each code fence. Yield None for
    invalid JSON.
    """
    yield _parse_or_none(text.strip())
    for match in _FENCE.finditer(text):
        yield _parse_or_none(match.group(1).strip())


def _parse_or_none(text: str) -> Any:
    try:
        return _whole(STRICT.decode(text), text)
    except ValueError:
        return None


def _beginning(text: str) -> int:
    """Return the index after leading white space and the opening of a code fence."""
    match = _LEAD.match(text)
    if match:
        return match.end()
    return 0


def _object_at(
    text: str, start: int, *, may_repair: bool = True
) -> tuple[dict[str, Any], int] | None:
    """Return the object that begins at `start`, and the index after it. None: there is no
    whole object, or it needs a repair that is not allowed.
    """
    if not text.startswith("{", start):
        return None
    try:
        value, end = STRICT.raw_decode(text, start)
    except json.JSONDecodeError:
        if may_repair:
            return _repair_object_at(text, start)
        return None
    except ValueError:
        return None
    if isinstance(value, dict):
        return value, end
    return None


def _repair_object_at(text: str, start: int) -> tuple[dict[str, Any], int] | None:
    """Return the object at `start` after `repair_json`, and the index after it, or None."""
    for ends_in_backslash in (False, True):
        repaired, end = repair_json(text, start, ends_in_backslash=ends_in_backslash)
        if end is not None:
            value = _parse_or_none(repaired)
            if isinstance(value, dict):
                return value, end
    return None


def _largest_object(text: str) -> dict[str, Any] | None:
    """Return the largest whole object in the text. Return None if the text begins with an
    object that was cut off.
    """
    best: tuple[int, dict[str, Any]] | None = None
    position = text.find("{")
    begins = _beginning(text)
    repairs = _MAX_REPAIRED_STARTS
    for _ in range(_MAX_STARTS):
        if position < 0:
            break
        candidate = _object_at(text, position, may_repair=repairs > 0)
        if candidate is None:
            if position == begins:
                return None
            repairs -= 1
            position = text.find("{", position + 1)
            continue
        value, behind = candidate
        if best is None or behind - position > best[0]:
            best = (behind - position, value)
        position = text.find("{", behind)
    if best:
        return _whole(best[1], text)
    return None
