"""Texts with placeholders. Nothing is evaluated, and inserted texts are not searched for
placeholders.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

REQUEST = "request"
"""The placeholder of the request."""
ITEM = "item"
"""The placeholder of the item of a copy."""
OWN_NAMES = frozenset({REQUEST, ITEM})
"""Placeholders that mean the same in every workflow. No column may have one of these names."""
_TOKEN = re.compile(r"\{\{|\{([^{}\n]+)\}|\{")
"""`{{` for a brace, a placeholder, or a stray `{`. A closing brace is plain text."""


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed text, such as `Look at {item}.`"""

    literals: tuple[str, ...]
    """The texts around the placeholders: one more than there are names."""
    names: tuple[str, ...]
    """The names of the placeholders, in order."""
    has_stray_brace: bool = False
    """True if a `{` begins no placeholder and is not doubled."""

    @classmethod
    def parse(cls, text: str) -> Template:
        """Parse a text."""
        literals = [""]
        names: list[str] = []
        has_stray_brace = False
        end = 0  # place after the token before
        for token in _TOKEN.finditer(text):
            literals[-1] += text[end : token.start()]
            end = token.end()
            name = (token[1] or "").strip()
            if name:
                names.append(name)
                literals.append("")
                continue
            literals[-1] += "{"
            if token[0] != "{{":
                has_stray_brace = True
        literals[-1] += text[end:]
        return cls(tuple(literals), tuple(names), has_stray_brace)

    def fill(self, values: Mapping[str, str]) -> str:
        """Return the text with its placeholders filled.

        Raises:
            KeyError: a placeholder has no value.
        """
        filled = [self.literals[0]]
        for name, literal in zip(self.names, self.literals[1:], strict=True):
            filled += (values[name], literal)
        return "".join(filled)
