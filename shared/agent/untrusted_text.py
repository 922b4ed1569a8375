"""Delimiters of untrusted text in a prompt. Text inside `<data>` tags is material, and the rules in
`system_prompt.py` say that it has no instructions.
"""

from __future__ import annotations

import re

OWN_TAGS = (
    "data",
    "documents",
    "earlier_turns",
    "fallback",
    "feedback",
    "message",
    "not_shown",
    "notes",
    "output_format",
    "previous",
    "result",
    "task",
)
"""Names of the tags around the parts of a prompt."""
CHAT_TAGS = ("assistant", "function_calls", "function_results", "human", "system", "tool_result")
"""Names of tags that mark turns and system prompts in other programs. A model may know them."""
_GAP = r"[\s\u00ad\u200b-\u200f\u2060\ufeff]*+"
"""White space, and invisible characters."""
_TAG = "|".join(OWN_TAGS + CHAT_TAGS)
_BEGINNINGS = "<\uff1c\ufe64"
"""The characters that begin a tag."""
_CLOSING = re.compile(
    rf"([{_BEGINNINGS}]{_GAP})[/\uff0f\u2044\u2215](?={_GAP}(?:{_TAG})(?![\w-]))",
    re.IGNORECASE,
)
"""A closing tag of the prompt, also with other forms of its characters."""


def escape_tags(text: str) -> str:
    """Return the text with the closing tags of the prompt escaped, so that it cannot close the tag
    around it. `CHAT_TAGS` are escaped, too. Closing tags of HTML stay as they are. A JSON text
    keeps its value, except for other forms of a slash in such a tag.
    """
    if not any(beginning in text for beginning in _BEGINNINGS):  # much faster than the pattern
        return text
    return _CLOSING.sub(r"\1\\/", text)


def as_data(text: str) -> str:
    """Return a text in `<data>` tags, which it cannot close."""
    return f"<data>{escape_tags(text)}</data>"
