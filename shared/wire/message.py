"""What every wire type has in common: frozen, strict, closed to unknown fields, canonical as JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Self

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from shared.wire.errors import MalformedMessage


class Message(BaseModel):
    """A frozen value that travels between processes or lies in the ledger as JSON."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", ser_json_inf_nan="null", hide_input_in_errors=True)

    def to_json(self) -> str:
        """The one JSON text of this value: what is hashed is what is stored and sent."""
        return self.model_dump_json()

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Parse and validate.

        Raises:
            MalformedMessage: with the first three problems, in one line, and none of the payload.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise MalformedMessage(f"{cls.__name__}: {problems_of(error)}") from error

    @classmethod
    def of(cls, value: JsonValue) -> Self:
        """The same out of JSON's values: a part of another message, such as the output of a result.

        Raises:
            MalformedMessage: as of a text.
        """
        return cls.from_json(json.dumps(value))

    @property
    def content_digest(self) -> str:
        """SHA-256 of the JSON text, hexadecimal."""
        return digest_of(self.to_json())


NO_PAYLOAD_IN_ERRORS = ConfigDict(hide_input_in_errors=True)
"""For whatever else parses what others have written: the traceback of a defect goes into a log."""


def digest_of(text: str | bytes) -> str:
    """SHA-256 of the UTF-8 bytes, hexadecimal: the name of a blob."""
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


def each_problem(error: ValidationError) -> Iterator[tuple[tuple[str, ...], str]]:
    """Where, from the outermost field inwards, and what; without the offending values (they may be secrets)."""
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        yield tuple(map(str, problem["loc"])), problem["msg"]


def problems_of(error: ValidationError, most: int = 3) -> str:
    """Where and what, in one line."""
    found = [f"{'.'.join(where) or 'message'}: {what}" for where, what in each_problem(error)]
    rest = f" (and {len(found) - most} more)" if len(found) > most else ""
    return "; ".join(found[:most]) + rest
