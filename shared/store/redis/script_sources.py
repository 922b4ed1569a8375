"""The text of a script of the ledger, put together: what it uses of the parts that stand in front of it, and the script itself.

Whenever a script runs, all that stands in front of it runs, too, and makes its functions: what nobody asks for would take its time there.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

PARTS = (
    "prelude",
    "books",
    "pausing",
    "pacing",
    "letting",
    "silence",
    "looking",
    "claiming",
    "tallying",
    "finishing",
    "dequeuing",
)
"""In the order in which they build on one another. Each is definitions and nothing else; what is inside of one is indented."""
WORD = re.compile(r"[A-Za-z_]\w*")
COMMENT = re.compile(r"^\s*--.*\n|\s+-- .*$", re.MULTILINE)
DEFINED = re.compile(r"local (?:function )?([\w, ]+)")


def source_of(name: str) -> str:
    """The whole of a script, as Redis gets it."""
    code = _code_of(name)
    wanted, used = set(WORD.findall(code)), list[str]()
    for names, text in reversed(_definitions()):
        if names & wanted:
            used.insert(0, text)
            wanted |= set(WORD.findall(text))
    return "".join((*used, code))


@cache
def _definitions() -> tuple[tuple[frozenset[str], str], ...]:
    """All of the parts: names, and the text."""
    texts = [
        one
        for part in PARTS
        for one in re.split(r"^(?=local )", _code_of(part), flags=re.MULTILINE)
        if one.strip()
    ]
    return tuple(
        (frozenset(WORD.findall(match[1])), text)
        for text in texts
        if (match := DEFINED.match(text))
    )


def _code_of(name: str) -> str:
    """Without its comments."""
    return COMMENT.sub(
        "", (files("handoff_queue.shared.store") / "lua" / f"{name}.lua").read_text()
    )
