"""Characters that Unicode or UTF-16 can spell in two ways, and halves of characters.

Half of a character is a lone surrogate. JSON and file names can hold it. UTF-8 cannot, so
nothing could store or send it.
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
    """Return the text with two adjacent surrogates joined, as after a cut in a stream, and other
    lone surrogates replaced (U+FFFD).
    """
    if not has_half_a_character(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def all_in_whole_characters(value: Any) -> Any:
    """Replace lone surrogates in all texts of plain data, also in names of fields."""
    if isinstance(value, str):
        return in_whole_characters(value)
    if isinstance(value, list | tuple):
        return type(value)(map(all_in_whole_characters, value))
    if isinstance(value, dict):
        characters: dict[Any, Any] = {}
        for name, item in value.items():
            characters[all_in_whole_characters(name)] = all_in_whole_characters(item)
        return characters
    return value
