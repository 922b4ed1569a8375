"""Python and Lua give the arguments of a script the same names, in the same order."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from handoff_queue.shared.store import positional_arguments
from handoff_queue.shared.store.redis import script

LUA = Path(script.__file__).parents[1] / "lua"
MAX_UNNAMED = 6
"""Most arguments that a script may read by their positions."""
FILES = {
    "ClaimArguments": "parts/claims.lua",
    "FinishArguments": "parts/results.lua",
    "TurnArguments": "turn.lua",
    "TakeMessagesArguments": "take_messages.lua",
    "BeginEvaluationArguments": "lease_job_evaluation.lua",
    "MemoryNoteArguments": "store_memory_note.lua",
    "JobFilterArguments": "parts/job_filter.lua",
}
TYPES: dict[str, Any] = {
    name: kind
    for name, kind in inspect.getmembers(positional_arguments, inspect.isclass)
    if name.endswith("Arguments")
}
NAMED = re.compile(r"local\s+([\w,\s]+?)\s*=\s*unpack\(\s*(?:ARGV|arguments),\s*1,\s*([^)]+?)\s*\)")
FIRST = re.compile(r"local (FIRST\w*) = (\d+)")


def test_each_type_has_a_script() -> None:
    assert FILES.keys() == TYPES.keys()


@pytest.mark.parametrize(("name", "file"), list(FILES.items()))
def test_a_script_names_its_arguments_as_its_caller_does(name: str, file: str) -> None:
    text = (LUA / file).read_text()
    ((names, last),) = NAMED.findall(text)
    for constant, number in FIRST.findall(text):
        last = last.replace(f"{constant} - 1", str(int(number) - 1))

    fields = tuple(re.split(r",\s*", names))

    assert fields == TYPES[name]._fields
    assert int(last) == len(fields)


@pytest.mark.parametrize("path", sorted(LUA.rglob("*.lua")), ids=lambda path: path.name)
def test_a_script_with_many_arguments_names_each(path: Path) -> None:
    positions = map(int, re.findall(r"(?:ARGV|arguments)\[(\d+)\]", path.read_text()))

    assert max(positions, default=0) <= MAX_UNNAMED
