"""Delimiters of untrusted text in a prompt. Text inside `<data>` tags is material, and the rules of
`prompt.py` say that it has no instructions.
"""

from __future__ import annotations


def escape_tags(text: str) -> str:
    """Return the text with its closing tags escaped, so that it cannot close the tag around it. A
    JSON text keeps its value.
    """
    return text.replace("</", "<\\/")


def as_data(text: str) -> str:
    """Return a text in `<data>` tags, which it cannot close."""
    return f"<data>{escape_tags(text)}</data>"
