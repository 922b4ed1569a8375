"""Functions that find, repair and complete the JSON in a model's reply.

The library json-repair is not used. It also makes objects of prose, unclosed brackets and bare
words, so that an answer that was cut off would look whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, cast

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
"""A string token that may end in a backslash. A backslash and a quote end the string if the next
characters can only follow a string.

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


_FENCE = re.compile(r"```[a-zA-Z]*[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)
_LEAD = re.compile(r"\s*(?:```[a-zA-Z]*\s*)?")
_HALF = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
"""A surrogate as a JSON escape or as a character. Most answers have none, so they need no
search for lone surrogates.
"""
_MAX_STARTS = 200
"""Opening braces at which an object is searched. Without a limit, a text of nothing but braces
would need quadratic time.
"""
_MAX_REPAIRED_STARTS = 20
"""Opening braces at which a repair is tried, for the same reason."""


def find_json_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object of a final text: the whole text, the content of a code fence, or
    the largest object within prose. None: there is no whole object.

    Raw line breaks and lone backslashes in strings, and commas before a closing bracket, are
    repaired.
    """
    json_object = parse_whole_object(text)
    if json_object is not None:
        return json_object
    for match in _FENCE.finditer(text):
        part = match.group(1)
        start = len(part) - len(part.lstrip())
        inside = _parse_object_at(part, start)
        if inside is None:
            continue
        value, end = inside
        if not part[end:].strip():
            return _without_lone_surrogates(value, text)
    return _find_largest_object(text)


def parse_whole_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object that is the whole text, also in a code fence, or None."""
    start = _find_beginning(text)
    if not text.startswith("{", start):
        return None
    object_and_end = _parse_object_at(text, start)
    if object_and_end is None:
        return None
    value, end = object_and_end
    if text[end:].strip(" \t\r\n`"):
        return None
    return _without_lone_surrogates(value, text)


def parse_first_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object with which a text begins, also in a code fence. None: there is no
    whole object. Nothing is repaired.
    """
    first = _parse_object_at(text, _find_beginning(text), may_repair=False)
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
    kept_properties: dict[Any, Any] = {}
    for name, item in value.items():
        if item is None and name in optional:
            continue
        if isinstance(properties.get(name), dict):
            kept_properties[name] = without_nulls(item, properties[name], root)
        else:
            kept_properties[name] = item
    return kept_properties


def describe_text(text: str) -> str:
    """Describe a final text that is not a JSON object, for the error message. The description
    quotes no text of the model, and at most 20 characters of a number.
    """
    for value in _iterate_values(text):
        if isinstance(value, list):
            return "a JSON list"
        if value is not None:
            return "a JSON value that is not an object"
    begins = _find_beginning(text)
    if text[begins : begins + 1] not in ("{", "["):
        return f"plain text ({len(text.strip()):,} characters)"
    try:
        STRICT.raw_decode(text, begins)
    except json.JSONDecodeError:
        pass
    except ValueError as error:
        return f"JSON that cannot be stored ({error})"
    return "JSON that is broken or cut off"


def parse_partial_object(text: str) -> dict[str, Any] | None:
    """Return the readable part of a JSON object that was cut off, or None if there is no such
    part. The object begins at the first brace of the text.
    """
    start = text.find("{")
    if start < 0:
        return None
    repaired_text, _ = repair_json(text, start)
    try:
        value = from_json(repaired_text, allow_partial="trailing-strings", allow_inf_nan=False)
        check_depth(value)
        value = _without_lone_surrogates(value, text)
        check_storable(value)  # from_json reads 1e999 as infinity
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict):
        return value
    return None


def find_draft(text: str) -> str:
    """Return the text of `output` in an unfinished answer envelope, or "" if there is none yet."""
    value = None
    if text.lstrip().startswith(("{", "```")):
        value = (parse_partial_object(text) or {}).get("output")
    if isinstance(value, str):
        return value
    return ""


_Value = TypeVar("_Value")


def _without_lone_surrogates(value: _Value, text: str) -> _Value:
    """Return the value, parsed from `text`, without lone surrogates. JSON can write them, and
    UTF-8 cannot.
    """
    if not _HALF.search(text):
        return value
    return cast(_Value, replace_all_lone_surrogates(value))


def _iterate_values(text: str) -> Iterator[Any]:
    """Yield the JSON value of the whole text, and then of each code fence. Yield None for
    invalid JSON.
    """
    yield _parse_or_none(text.strip())
    for match in _FENCE.finditer(text):
        yield _parse_or_none(match.group(1).strip())


def _parse_or_none(text: str) -> Any:
    try:
        return _without_lone_surrogates(STRICT.decode(text), text)
    except ValueError:
        return None


def _find_beginning(text: str) -> int:
    """Return the index after leading white space and the opening of a code fence."""
    match = _LEAD.match(text)
    if match:
        return match.end()
    return 0


def _parse_object_at(
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
        repaired_text, end = repair_json(text, start, ends_in_backslash=ends_in_backslash)
        if end is not None:
            value = _parse_or_none(repaired_text)
            if isinstance(value, dict):
                return value, end
    return None


def _find_largest_object(text: str) -> dict[str, Any] | None:
    """Return the largest whole object in the text. Return None if the text begins with an
    object that was cut off.
    """
    best: tuple[int, dict[str, Any]] | None = None
    position = text.find("{")
    begins = _find_beginning(text)
    repairs = _MAX_REPAIRED_STARTS
    for _ in range(_MAX_STARTS):
        if position < 0:
            break
        candidate = _parse_object_at(text, position, may_repair=repairs > 0)
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
        return _without_lone_surrogates(best[1], text)
    return None
