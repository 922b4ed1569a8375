"""The text of a script of the ledger, put together: what it uses of the parts that stand in front of it, and the script itself.

Whenever a script runs, all that stands in front of it runs, too, and makes its functions: what nobody asks for would take its time there.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

PARTS = ("prelude", "books", "pausing", "pacing", "letting", "silence", "looking", "claiming", "tallying")
"""In the order in which they build on one another. Each is definitions and nothing else; what is inside of one is indented."""
MADE_LATER = frozenset(("settle", "let_go", "hold", "claim"))
"""Functions that many of those who know them do not call: each is made when it is called for the first time, with what only it uses."""
LATER = """local {0}_made
local function {0}(...)
if not {0}_made then
{1}{0}_made = {0}
end
return {0}_made(...)
end
"""
WORD = re.compile(r"[A-Za-z_]\w*")
COMMENT = re.compile(r"^\s*--.*\n|\s+-- .*$", re.MULTILINE)
DEFINED = re.compile(r"local (?:function )?([\w, ]+)")


def source_of(name: str) -> str:
    """The whole of a script, as Redis gets it."""
    code = _code_of(name)
    return _in_front_of(code, len(_definitions()), frozenset()) + code


def _in_front_of(code: str, behind: int, given: frozenset[int]) -> str:
    """What some code uses of the definitions before this place, but for those that are given; in their order."""
    definitions, wanted, used = _definitions(), set(WORD.findall(code)), list[int]()
    for place in reversed(range(behind)):
        names, text = definitions[place]
        if place not in given and names & wanted:
            used.insert(0, place)
            wanted |= set() if names & MADE_LATER else set(WORD.findall(text))
    there = given.union(used)
    return "".join(_made_later(place, there) if definitions[place][0] & MADE_LATER else definitions[place][1] for place in used)


def _made_later(place: int, given: frozenset[int]) -> str:
    names, text = _definitions()[place]
    return LATER.format(*names, _in_front_of(text, place, given) + text)


@cache
def _definitions() -> tuple[tuple[frozenset[str], str], ...]:
    """All of the parts: names, and the text."""
    texts = [one for part in PARTS for one in re.split(r"^(?=local )", _code_of(part), flags=re.MULTILINE) if one.strip()]
    return tuple((frozenset(WORD.findall(match[1])), text) for text in texts if (match := DEFINED.match(text)))


def _code_of(name: str) -> str:
    """Without its comments."""
    return COMMENT.sub("", (files("shared.ledger") / "scripts" / f"{name}.lua").read_text())
