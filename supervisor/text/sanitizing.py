"""Text of others, so that nothing that shows it obeys it. Pure."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Terminal escapes, and what turns the reading direction: documents and models may write them."""


def plain(text: str) -> str:
    """Return the text in a form that is safe for a terminal and for a page."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def in_one_line(text: str) -> str:
    """Return the safe text without line breaks."""
    return " ".join(plain(text).split())


def json_for_all(text: str) -> str:
    """Return the same JSON with unsafe characters as escapes."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
