"""Images of other hosts in Markdown. A viewer would fetch them at once, so the URL of an image can
carry data out. Pure.
"""

from __future__ import annotations

import re

_REMOTE = r"\s*<?\s*(?:https?:)?[/\\]{2}"
_INLINE = re.compile(rf"!(?=\[[^\n]{{0,2000}}?\]\({_REMOTE})", re.IGNORECASE)
_DEFINITION = re.compile(rf"^ {{0,3}}\[([^\[\]\n]+)\]:{_REMOTE}", re.IGNORECASE | re.MULTILINE)
_REFERENCE = re.compile(r"!(?=\[([^\[\]\n]*)\](?:\[([^\[\]\n]*)\])?)")
_ELEMENT = re.compile(
    rf"<(?=[a-z][^<>]{{0,4000}}?(?:src|srcset|href|data|poster|style)\s*=[^<>]{{0,4000}}?{_REMOTE})",
    re.IGNORECASE,
)


def without_foreign_images(text: str) -> str:
    """Return the Markdown with images of other hosts, and HTML elements with a URL, as plain text.

    The URL stays visible, and a reader can follow it.
    """
    text = _ELEMENT.sub("&lt;", _INLINE.sub(r"\\!", text))
    labels = {_label(match) for match in _DEFINITION.findall(text)}
    if not labels:
        return text

    def escaped(match: re.Match[str]) -> str:
        if _label(match[2] or match[1]) in labels:
            return "\\!"
        return match[0]

    return _REFERENCE.sub(escaped, text)


def _label(text: str) -> str:
    return " ".join(text.split()).casefold()
