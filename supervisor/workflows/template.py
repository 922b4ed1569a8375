"""Texts with placeholders. Names are looked up once: nothing is evaluated, and inserted text is
never read again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

REQUEST = "request"
ITEM = "item"
OWN_NAMES = frozenset({REQUEST, ITEM})
"""Placeholders that mean the same in every workflow: no column may be called so."""
_TOKEN = re.compile(r"\{\{|\{([^{}\n]+)\}|\{")
"""A brace that is meant, a placeholder, or a brace that is neither. A closing brace alone is
itself. Reads no character more than twice.
"""


@dataclass(frozen=True, slots=True)
class Template:
    """`Look at {item}.` taken apart. There is one literal more than there are names."""

    literals: tuple[str, ...]
    names: tuple[str, ...]
    has_stray_brace: bool = False
    """A `{` that begins no placeholder and is not doubled."""

    @classmethod
    def of(cls, text: str) -> Template:
        literals, names, is_stray, end = [""], [], False, 0
        for token in _TOKEN.finditer(text):
            literals[-1] += text[end : token.start()]
            if name := (token[1] or "").strip():
                names.append(name)
                literals.append("")
            else:
                is_stray |= token[0] != "{{"
                literals[-1] += "{"
            end = token.end()
        literals[-1] += text[end:]
        return cls(tuple(literals), tuple(names), is_stray)

    def fill(self, values: Mapping[str, str]) -> str:
        """Return the text with its placeholders filled.

        Raises:
            KeyError: a placeholder has no value.
        """
        filled = [self.literals[0]]
        for name, literal in zip(self.names, self.literals[1:], strict=True):
            filled += (values[name], literal)
        return "".join(filled)
