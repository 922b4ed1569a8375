"""Removal of characters that a terminal or a page would obey, from text of other authors. Pure."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Control characters other than tab and line feed, which include terminal escapes. Characters that
change the reading direction. U+2028 and U+2029, at which some programs end a line.
"""


def replace_unsafe(text: str) -> str:
    """Return the text with U+FFFD in place of each unsafe character. It is not escaped for HTML."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def flatten_to_line(text: str) -> str:
    """Return the safe text on one line, with single spaces."""
    return " ".join(replace_unsafe(text).split())


def escape_unsafe_in_json(text: str) -> str:
    """Return the same JSON with unsafe characters in its strings as escapes."""

    def escape(unsafe: re.Match[str]) -> str:
        return f"\\u{ord(unsafe[0]):04x}"

    return _CONTROL.sub(escape, text)
