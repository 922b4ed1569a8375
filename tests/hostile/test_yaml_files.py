"""A hostile YAML file of a specialist, a workflow or gates costs one line, soon."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from handoff_queue.shared.specialists.specialist_files import read_specialist
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.specialist import SpecialistSpec
from handoff_queue.supervisor.gates.gates_file import GateSet, read_gates
from handoff_queue.supervisor.workflows import Workflow
from handoff_queue.supervisor.workflows.parser import parse_workflow

SPECIALIST = """---
name: chemist
description: Answers questions about reactions.
FIELD
---

You are a chemist. Answer in one paragraph.
"""
WORKFLOW = """description: Look at each part.
FIELD
steps:
  - {id: look, title: Look, specialist: analyst, task: Look at it.}
"""


def as_specialist(folder: Path, field: str) -> SpecialistSpec:
    file = folder / "a.md"
    file.write_text(SPECIALIST.replace("FIELD", field), errors="surrogatepass")
    return read_specialist(file)


def as_workflow(_folder: Path, field: str) -> Workflow:
    return parse_workflow(WORKFLOW.replace("FIELD", field))


def as_gates(folder: Path, field: str) -> GateSet:
    file = folder / "gates.yaml"
    file.write_text(f"{field}\n", errors="surrogatepass")
    return read_gates(file)


READERS: dict[str, Callable[[Path, str], object]] = {
    "specialist": as_specialist,
    "workflow": as_workflow,
    "gates": as_gates,
}
LAUGHS = "x: &a [x]\n" + "".join(
    f"y{n}: &b{n} [{', '.join([f'*b{n - 1}' if n else '*a'] * 9)}]\n" for n in range(9)
)
FIELDS = {
    "a bomb of aliases": LAUGHS,
    "an alias of itself": "x: &a [*a]",
    "an anchor that is never used": "x: &a 1",
    "an object of Python": "x: !!python/object/apply:os.system [touch owned]",
    "a new object of Python": "x: !!python/object/new:tuple [[1]]",
    "a module of Python": "x: !!python/module:os",
    "a tag of another language": "x: !ruby/object:Gem::Installer {}",
    "a binary value": "x: !!binary aGVsbG8=",
    "a set": "x: !!set {a, b}",
    "a merge of an alias": "x: &a {y: 1}\nz: {<<: *a}",
    "a directive of another version": "%YAML 9.9\n",
    "a tag directive": "%TAG ! tag:evil,2000:\n",
    "a second document": "...\nx: 1",
    "a key that is a list": "? [a, b]\n: 1",
    "a key that is a mapping": "? {a: 1}\n: 1",
    "a field that is there twice": "description: again of many\ndescription: once more of it",
    "mappings of 5,000 levels": "x: " + "{a: " * 5_000,
    "lists of 5,000 levels": "x:\n" + "- " * 5_000 + "1",
    "a NUL": "x: a\0b",
    "an escape of a terminal": "x: a\x1b[2J",
    "half a character": 'x: "\\ud83d"',
    "an escape of no character": 'x: "\\U00110000"',
    "an escape of no integer in C": 'x: "\\UFFFFFFFF"',
    "a number of 5,000 digits": "max_turns: " + "9" * 5_000,
    "infinity": "max_turns: .inf",
    "not a number": "max_turns: .nan",
    "a number of base 60": "max_turns: 1" + ":59" * 20_000,
    "a date": "max_turns: 2026-11-28",
    "an invalid date": "max_turns: 9999-99-99",
    "a text without an end": 'x: "' + "a" * 10_000,
    "a line break in a name": '"x\\ny": 1',
    "a tab": "\tx: 1",
    "an unknown field": "__class__: 1",
}
SECONDS = 3.0
"""Processor time of one file. A valid file takes 0.02 s."""


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("field", FIELDS)
def test_a_hostile_file_is_refused_with_one_line(tmp_path: Path, field: str, reader: str) -> None:
    check_refusal(tmp_path, FIELDS[field], reader)


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_brackets_of_5000_levels_are_refused_with_one_line(tmp_path: Path, reader: str) -> None:
    """PyYAML compares each bracket with a thousand others."""
    check_refusal(tmp_path, "x: " + "[" * 5_000, reader)


def check_refusal(folder: Path, field: str, reader: str) -> None:
    begun = time.thread_time()

    with pytest.raises(UserError) as caught:
        READERS[reader](folder, field)

    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 2_000
    assert time.thread_time() - begun < SECONDS
    assert not Path("owned").exists()


def test_the_files_without_the_field_are_valid(tmp_path: Path) -> None:
    assert as_specialist(tmp_path, "max_turns: 3").max_turns == 3
    assert as_workflow(tmp_path, "review: true").review
    assert as_gates(tmp_path, "min_words: 3").gates.min_words == 3
