"""Characters that a person cannot see, such as zero-width and tag characters. They are removed from
a text before a model reads it.
"""

from __future__ import annotations

import re

_INVISIBLE = re.compile(
    "[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180e\u200b\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
"""Characters without a shape, and characters that change the reading direction. An attacker can
spell an instruction with these characters, and only a model reads it.
"""
_RUN = re.compile("[\u061c\u180b-\u180d\u180f\u200c-\u200f\u2800\ufe0e\ufe0f]{3,}")
"""Joiners, direction marks, blanks and selectors that some scripts and emoji need, one or two at a
time. A longer run is invisible text.
"""


def visible(text: str) -> str:
    """Return the text without the characters that a person cannot see."""
    if text.isascii():
        return text
    return _RUN.sub("", _INVISIBLE.sub("", text))


def printable(text: str) -> str:
    """Return the text with U+FFFD in place of each character that is not printable, such as a
    line break or a terminal escape.
    """
    if text.isprintable():
        return text
    shown: list[str] = []
    for character in text:
        shown.append(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}")
    return "".join(shown)
