"""The base class of all messages: frozen, strict, without unknown fields, with one JSON text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from handoff_queue.shared.text.unicode_text import replace_unprintable
from handoff_queue.shared.text.word_forms import close_names
from handoff_queue.shared.types.errors import MalformedMessage, UserError
from handoff_queue.shared.types.names import NAME_PATTERN, NAME_RULE

OmitNone = Field(exclude_if=lambda value: value is None)
"""A field that the JSON does not contain if it is None, so that older versions can read the
message.
"""

OmitZero = Field(exclude_if=lambda value: value == 0)
"""A number that the JSON does not contain if it is 0, as with `OmitNone`."""


Base = TypeVar("Base")

LATEST_TIME_S = 253_402_214_400.0
"""The last day of the year 9999 as Unix time in seconds. Python has a date for each earlier time,
in all time zones.
"""
UnixTime = Annotated[float, Field(ge=0, le=LATEST_TIME_S, allow_inf_nan=False)]
"""Unix time in seconds. A worker may have written any number, and a page shows it as a date."""


class Message(BaseModel):
    """A frozen value that travels between processes or is stored as JSON."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", ser_json_inf_nan="null", hide_input_in_errors=True
    )

    def to_json(self) -> str:
        """Return the JSON text of the message. The same text is hashed, stored and sent."""
        return self.model_dump_json()

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Parse and validate a message.

        Raises:
            MalformedMessage: the text is invalid. The message has the first three problems in one
                line, and never the text.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise MalformedMessage(f"{cls.__name__}: {describe_problems(error)}") from error

    @classmethod
    def from_value(cls, value: JsonValue) -> Self:
        """Validate a JSON value, such as the output of a result.

        Raises:
            MalformedMessage: see `from_json`.
        """
        try:
            text = to_json(value)
        except PydanticSerializationError as error:
            raise MalformedMessage(
                f"{cls.__name__}: it has half a character (a lone surrogate), or is nested too deep"
            ) from error
        return cls.from_json(text)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy like pydantic's, in half the time, because a message has no private or
        extra attributes.
        """
        if deep:
            return super().model_copy(update=update, deep=True)
        changes = dict(update or {})
        copy = self.__class__.__new__(self.__class__)
        copy.__setstate__(
            {
                "__dict__": self.__dict__ | changes,
                "__pydantic_fields_set__": self.__pydantic_fields_set__ | changes.keys(),
                "__pydantic_extra__": None,
                "__pydantic_private__": None,
            }
        )
        return copy

    @property
    def content_digest(self) -> str:
        """Return the SHA-256 of the JSON text, hexadecimal."""
        return compute_digest(self.to_json())


_PUBLIC_NAMES = {"JobLimits": "Limits"}
"""Names in `handoff_queue` of types that have another name in their module."""


def get_public_name(kind: type) -> str:
    """Return the name that a type has in `handoff_queue`."""
    return _PUBLIC_NAMES.get(kind.__name__, kind.__name__)


class PublicMessage(Message):
    """A message that programs of users construct.

    A wrong argument raises UserError, with one line for the user. Parsers raise the errors of
    `Message`.
    """

    if not TYPE_CHECKING:  # type checkers know the arguments from the fields

        def __init__(self, /, *values: Any, **fields: Any) -> None:
            if values:
                name = get_public_name(type(self))
                example = next(iter(type(self).model_fields))
                raise UserError(f"{name}: write the name of each field: {name}({example}=...)")
            try:
                super().__init__(**fields)
            except ValidationError as error:
                kind = type(self)
                problems = describe_problems(error, kind=kind, shows_values=True)
                problems = problems.replace(_PLAINER["tuple_type"], "must be a tuple")
                raise UserError(f"{get_public_name(kind)}: {problems}") from None

        # Pydantic's mark of its own `__init__`. Without the mark, its parsers call this one.
        __init__.__pydantic_base_init__ = True


NO_PAYLOAD_IN_ERRORS = ConfigDict(hide_input_in_errors=True)
"""Configuration of other parsers of foreign text, whose errors must not contain the text."""


REMEMBERED_CHARS = 20_000
"""Most characters of a text whose digest the process caches. The cache has 256 texts."""


def compute_digest(text: str | bytes) -> str:
    """Return the SHA-256 of the UTF-8 bytes, hexadecimal. It is the name of a payload."""
    if isinstance(text, str) and len(text) <= REMEMBERED_CHARS:
        return _digest_again(text)
    return _compute_digest(text)


def _compute_digest(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


_digest_again = lru_cache(maxsize=256)(_compute_digest)


MAX_PROBLEMS = 1_000
"""Most problems of one value. Foreign text may have a wrong value in each second byte."""
MAX_FIELDS_LISTED = 40
"""Most fields that a message about an unknown field lists. The body of a job has 26."""
MAX_FIELDS_SAMPLED = 12
"""Most fields that a message about a value without fields names."""


def iterate_problems(
    error: ValidationError,
    kind: type[BaseModel] | None = None,
    *,
    shows_values: bool = False,
    is_json: bool = False,
    other_names: Mapping[str, str] | None = None,
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each problem: its place, from the outermost field inwards, and its text. At most the
    first `MAX_PROBLEMS` are yielded.

    If a list is too short only because its items are invalid, only the problems of the items
    are yielded.

    Args:
        kind: the type that was parsed. With it, the problem of an unknown field names the closest
            known field, and the problem of a value without fields names its fields.
        shows_values: True if the text may contain the wrong value: see `with_value`. False for a
            value that may be a short password, or that a process received.
        is_json: True if the user wrote JSON, and not YAML.
        other_names: what to write in place of a field of another interface, by its name there.
    """
    errors = error.errors(include_url=False, include_context=False, include_input=shows_values)
    errors = errors[:MAX_PROBLEMS]
    places = [problem["loc"] for problem in errors]
    for problem in errors:
        place = problem["loc"]
        if problem["type"] == "too_short" and _has_inner(place, places):
            continue
        message = describe_problem(problem["type"], problem["msg"])
        if problem["type"] in _NOT_FIELDS and is_json:
            message = "must be a JSON object"
        if problem["type"] == "extra_forbidden" and kind is not None:
            name = str(place[-1])
            if other_names and name in other_names:
                message += f": write {other_names[name]}"
            else:
                message += _suggest_field(name, _find_fields(kind, place[:-1]))
        if shows_values:
            message = with_value(message, problem["input"])
        if problem["type"] == "is_instance_of" and kind is not None:
            message += _list_members(kind, place)
        if problem["type"] == "missing" and kind is not None:
            message += ": add it"
        if problem["type"] in _NOT_FIELDS:
            fields = _find_fields(kind, place) if kind else ()
            message += _list_sample_fields(fields, is_json=is_json)
        yield tuple(map(str, place)), message


def _suggest_field(name: str, fields: Sequence[str]) -> str:
    """Return the end of a message about an unknown field: the field that the user may mean, or
    the fields if they are few.
    """
    in_microusd = re.sub(r"usd$", "microusd", name)
    if in_microusd != name and in_microusd in fields:
        return f": did you mean {in_microusd}, in millionths of a US dollar?"
    close = close_names(name, fields)
    if close:
        return f": did you mean {close[0]}?"
    if 0 < len(fields) <= MAX_FIELDS_LISTED:
        return f": use one of {', '.join(fields)}"
    return ""


def _list_sample_fields(fields: Sequence[str], *, is_json: bool) -> str:
    """Return the end of a message about a value that has no fields: the names of some fields."""
    if not fields and is_json:
        return ': write {"name": value}'
    if not fields:
        return ": write `name: value`"
    names = list(fields[:MAX_FIELDS_SAMPLED])
    if len(fields) > MAX_FIELDS_SAMPLED:
        names.append("...")
    return f": use {', '.join(names)}"


def _has_inner(place: tuple[int | str, ...], places: Sequence[tuple[int | str, ...]]) -> bool:
    """Return whether another place is inside this place."""
    size = len(place)
    return any(len(other) > size and other[:size] == place for other in places)


def _list_members(kind: type[BaseModel], place: Sequence[int | str]) -> str:
    """Return the end of a message about a value that is not a member of an enumeration: the
    members, as a program writes them.
    """
    *outer, name = [part for part in place if isinstance(part, str)]
    message_type = _find_message_type(kind, outer)
    if message_type is None:
        return ""
    annotation = message_type.model_fields[name].annotation
    for enumeration in _iterate_types(annotation, Enum):
        members = ", ".join(f"{enumeration.__name__}.{member.name}" for member in enumeration)
        return f": use one of {members}"
    return ""


def _find_fields(kind: type[BaseModel], place: Sequence[int | str]) -> tuple[str, ...]:
    """Return the fields of the message type at a place inside a message type; empty if the
    type is unknown.
    """
    message_type = _find_message_type(kind, place)
    if message_type is None:
        return ()
    return tuple(message_type.model_fields)


def _find_message_type(kind: type[BaseModel], place: Sequence[int | str]) -> type[BaseModel] | None:
    """Return the message type at a place inside a message type; None: the type is unknown."""
    for name in place:
        if isinstance(name, int):  # an item of a list
            continue
        field = kind.model_fields.get(name)
        inner = None
        if field:
            inner = next(_iterate_types(field.annotation, BaseModel), None)
        if inner is None:
            return None
        kind = inner
    return kind


def _iterate_types(annotation: Any, base: type[Base]) -> Iterator[type[Base]]:
    """Yield the types in an annotation that have this base, such as the message `Step` in
    `tuple[Step, ...] | None`.
    """
    if isinstance(annotation, type) and issubclass(annotation, base):
        yield annotation
    for part in get_args(annotation):
        yield from _iterate_types(part, base)


NO_SUCH_FIELD = "there is no such field"
"""The problem of an unknown field."""
_NOT_FIELDS = ("dict_type", "model_type", "model_attributes_type")
_PLAINER = {
    "extra_forbidden": NO_SUCH_FIELD,
    "missing": "is missing",
    "string_type": "must be a text",
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("tuple_type", "list_type"), "must be a list"),
    **dict.fromkeys(_NOT_FIELDS, "must hold fields"),
}
_SHORTER = {"greater than or equal to": "at least", "less than or equal to": "at most"}
_MEMBER = re.compile(r"<[\w.]+: ('[^']*')>")
_SHOULD = re.compile(r"^\w+ should ")
MAX_VALUE_BITS = 256
"""Bits of the longest whole number that a message names."""
_SHORT_VALUE = re.compile(r"[\w .,+%-]{0,32}")
"""A value that an error may show. Keys, passwords and URLs are longer or have other characters."""
_NUMBER = re.compile(r"-?[0-9.]+")
_KEY = re.compile(r"\s*(?:sk-|hq_)")
"""The beginning of a key of the model provider, or of a token of the HTTP API."""


def describe_problem(kind: str, message: str) -> str:
    """Return pydantic's message in words for a user who does not know Python's types.

    Args:
        kind: pydantic's type of the problem.
    """
    for longer, shorter in _SHORTER.items():
        message = message.replace(longer, shorter)
    if NAME_PATTERN in message:
        return f"must be {NAME_RULE}"
    if kind in ("enum", "literal_error"):
        message = _MEMBER.sub(r"\1", message)
    if kind == "json_invalid":
        return f"must be JSON ({message.removeprefix('Invalid JSON: ')})"
    message = message.removeprefix("Value error, ").replace(" after validation", "")
    return _PLAINER.get(kind, _SHOULD.sub("must ", message))


_PATTERN = re.compile("must match pattern '[^']*'")


def with_hint(problem: str, hint: str) -> str:
    """Return a problem with a hint about its field, which replaces a regular expression."""
    if hint:
        problem = _PATTERN.sub("must have another form", problem)
    return problem + hint


def with_value(problem: str, value: object) -> str:
    """Return a problem with the wrong value, as in `must be at most 10, not 11`.

    A value that is not short and plain is left out: it may be a secret. A problem that names
    the value already, or that is not about a value, stays the same.
    """
    text = describe_value(value)
    if not text or not problem.startswith("must "):
        return problem
    if text.isdecimal() and problem == _PLAINER["int_type"]:  # a str in Python
        text = repr(text)
    return f"{problem}, not {text}"


def describe_value(value: object) -> str:
    """Return a wrong value for an error: a number, or a text in quotation marks. Return "" for a
    value that is not short and plain.
    """
    if not isinstance(value, str | int | float):
        return ""
    if isinstance(value, int) and value.bit_length() > MAX_VALUE_BITS:
        return ""  # Python does not write very long numbers
    text = str(value)
    if not _SHORT_VALUE.fullmatch(text) or _KEY.match(text):
        return ""
    if isinstance(value, bool):
        return text.lower()
    if isinstance(value, int | float) or _NUMBER.fullmatch(text):
        return text
    return repr(text)


def describe_problems(
    error: ValidationError,
    limit: int = 3,
    kind: type[BaseModel] | None = None,
    *,
    shows_values: bool = False,
    other_names: Mapping[str, str] | None = None,
) -> str:
    """Return the first problems with their places in one line, and the number of the others.

    Args:
        limit: most problems to name.
        kind: see `iterate_problems`.
        shows_values, other_names: see `iterate_problems`.
    """
    problems = iterate_problems(error, kind, shows_values=shows_values, other_names=other_names)
    lines: list[str] = []
    for where, problem in problems:
        place = replace_unprintable(".".join(where))
        lines.append(f"{place}: {problem}" if where else problem)
    rest = ""
    if len(lines) > limit:
        rest = f" (and {len(lines) - limit} more)"
    return "; ".join(lines[:limit]) + rest
