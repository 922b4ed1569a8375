"""The base class of a model's answers, which accepts small deviations from their schema."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

_CAMEL = re.compile(r"([a-z])([A-Z])")
_AROUND_A_WORD = " \t\r\n.!,:;*_`'\""
"""Punctuation, quotes and Markdown that models put around the word of an enumeration."""


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
        normalized_values: dict[Any, Any] = {}
        for name, value in values.items():
            field = cls.model_fields.get(name)
            if field is None:
                normalized_values[name] = value
            elif value is not None or field.is_required():
                normalized_values[name] = _find_word(value, field.annotation)
        return normalized_values


def _find_word(value: Any, kind: Any) -> Any:
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
