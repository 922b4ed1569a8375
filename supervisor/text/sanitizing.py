"""Text of others, so that nothing that shows it obeys it. Pure."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Terminal escapes, and what turns the reading direction: documents and models may write them."""


def plain(text: str) -> str:
    """Fit for a terminal, and for a page."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def in_one_line(text: str) -> str:
    """The same, without its line breaks."""
    return " ".join(plain(text).split())


def json_for_all(text: str) -> str:
    """The same JSON, fit for a terminal: these characters stand in it as escapes."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
