"""Characters that Unicode or UTF-16 can spell in two ways, and lone surrogates.

A lone surrogate is half of a character. JSON and file names can contain it. UTF-8 cannot, so
no process can store or send it.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

_HALF = re.compile(r"[\ud800-\udfff]")


def to_nfc(text: str) -> str:
    """Return the text in NFC. Texts that a reader cannot tell apart are then equal."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", text)


def has_half_a_character(text: str) -> bool:
    """Return whether the text contains a lone surrogate."""
    return not text.isascii() and _HALF.search(text) is not None


def in_whole_characters(text: str) -> str:
    """Return the text with two adjacent surrogates joined, as after a cut in a stream, and
    other lone surrogates replaced (U+FFFD).
    """
    if not has_half_a_character(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def all_in_whole_characters(value: Any) -> Any:
    """Return plain data with `in_whole_characters` applied to all texts and names of fields."""
    if isinstance(value, str):
        return in_whole_characters(value)
    if isinstance(value, list | tuple):
        return type(value)(map(all_in_whole_characters, value))
    if isinstance(value, dict):
        fields: dict[Any, Any] = {}
        for name, field_value in value.items():
            fields[all_in_whole_characters(name)] = all_in_whole_characters(field_value)
        return fields
    return value
