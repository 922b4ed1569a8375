"""Repair of the mistakes that language models make in JSON. Only the spelling is repaired: no value is guessed. Pure.

A library (json-repair) was considered. It also makes objects out of prose, of unclosed brackets and of bare words, so that an answer
that was cut off would look whole.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[{}\[\]]|,(?=\s*[}\]])', re.DOTALL)
"""A string (to the end of the text if it is not closed), a bracket, or a comma before a closing bracket."""
_TOKEN_ENDING_IN_A_BACKSLASH = re.compile(
    r'"(?:[^"\\]|\\"(?!\s*(?:,\s*["{\[]|[}\]:]))|\\[^"])*+(?:"|(?P<lone>\\")|\\?\Z)|[{}\[\]]|,(?=\s*[}\]])',
    re.DOTALL,
)
"""The same, but a backslash and a quote end a string if the next characters can only stand behind a string.

Example: `"C:\\dir\\", "claims": ...`.
"""
_UNESCAPED = re.compile(
    r'\\(?:u[0-9a-fA-F]{0,3})?\Z|[\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}|)', re.DOTALL
)
"""In a string: an escape that the end of the text cuts, a control character, or a backslash with its escape, if any."""


def repaired_json(
    text: str, start: int, *, ends_in_backslash: bool = False
) -> tuple[str, int | None]:
    """Repair the JSON value of brackets that begins at `start`.

    Control characters in strings (line breaks, tabs) and backslashes that escape nothing are escaped. Commas before a closing bracket are
    dropped.

    Args:
        text: Holds the value.
        start: The place of its first bracket.
        ends_in_backslash: Whether a string may end in a lone backslash. JSON reads such an end as a quote within the string.

    Returns:
        The repaired text and the place behind the value. The place is None if the value is not closed: then the rest of the text is
        repaired.
    """
    pattern = _TOKEN_ENDING_IN_A_BACKSLASH if ends_in_backslash else _TOKEN
    pieces: list[str] = []
    depth, position = 0, start
    for match in pattern.finditer(text, start):
        part = match.group()
        pieces.append(text[position : match.start()])
        position = match.end()
        if ends_in_backslash and match.group("lone"):
            part = f'{part[:-2]}\\\\"'
        if part == ",":
            continue
        pieces.append(_UNESCAPED.sub(_escaped, part) if part.startswith('"') else part)
        depth += (part in "{[") - (part in "}]")
        if depth == 0:
            return "".join(pieces), position
    pieces.append(text[position:])
    return "".join(pieces), None


def _escaped(match: re.Match[str]) -> str:
    escape = match.group()
    if escape.startswith("\\") and match.end() == len(match.string):
        return ""
    if len(escape) > 1:
        return escape
    return "\\\\" if escape == "\\" else f"\\u{ord(escape):04x}"
