"""The guides of docs/contributing/ name files, functions and fields that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, rows, sections, text_of

GUIDES = {path.stem: path.read_text() for path in (DOCS / "contributing").glob("*.md")}
ROOMS = ("shared", "supervisor", "workers", "chaos", "tests")
READS_NEEDS = re.compile(r"\.needs\b")
"""Code that reads the field of a result that the page takes as its example."""
OF_THE_EXAMPLE = {"StepNoted", "max_tool_calls", "HANDOFF_TOOL_OPEN_FILES"}
"""Names that the reader adds, or that the page gives as an example."""
CODE = re.compile(r"`([^`\n]+)`")
BLOCK = re.compile(r"^(?:\d+\. |- |\| |(?=[A-Z`])).*(?:\n(?!\n|\d+\. |- |\| |#).*)*", re.MULTILINE)
"""An item of a list with its inner items, a row of a table, or a paragraph."""
FILE = re.compile(r"[\w./]+\.(?:py|lua|jsonl|html|js)|[\w/]+/")
NAME = re.compile(r"[A-Za-z_]*[A-Z_]\w*")
"""A name of code: with a capital or an underscore. Names of commands and statuses are not."""
MEMBER = re.compile(r"([A-Z]\w*)\.(\w+)")
"""A member of a class."""
TEXTS = {".py", ".lua", ".js", ".html", ".md", ".json", ".jsonl"}
"""Ends of the names of text files."""
IN_FILE = re.compile(r"((?:`[^`\n]+`(?:,| and|,\nand)?\s+)+)(?:there\s+)?\(`([^`\n]+\.(?:py|lua))`")
"""Names directly before a file in brackets."""


def blocks() -> list[str]:
    return [block for body in GUIDES.values() for block in BLOCK.findall(body)]


def files_of(block: str) -> dict[str, list[Path]]:
    """Return the files that each path of a block stands for. A bare file name stands for the
    only file of that name, or for the one in the folder of a path of the block. A folder stands
    for all of its files.
    """
    files: dict[str, list[Path]] = {}
    for span in filter(FILE.fullmatch, CODE.findall(block)):
        if span.endswith("/"):
            files[span] = [path for path in (ROOT / span).rglob("*") if path.is_file()]
        elif "/" in span:
            files[span] = [path for path in [ROOT / span] if path.exists()]
    folders = {path.parent for paths in files.values() for path in paths}
    for span in filter(FILE.fullmatch, CODE.findall(block)):
        if "/" not in span:
            paths = [path for room in ROOMS for path in (ROOT / room).rglob(span)]
            beside = [path for path in paths if path.parent in folders]
            files[span] = beside if len(paths) > 1 else paths
    return files


def names_of(block: str) -> set[str]:
    """Return the names of functions, classes and fields in the code spans of a block."""
    names: set[str] = set()
    for span in CODE.findall(block):
        if match := MEMBER.fullmatch(span):
            names |= {match[1], match[2]}
        elif NAME.fullmatch(span):
            names.add(span)
    return names - OF_THE_EXAMPLE


def text_in(paths: list[Path]) -> str:
    """Return the texts of the files. A name in a comment of a script does not count."""
    texts: list[str] = []
    for path in paths:
        if path.suffix == ".lua":
            texts.append(re.sub(r"--.*", "", path.read_text()))
        elif path.suffix in TEXTS:
            texts.append(path.read_text())
    return "".join(texts)


def test_each_guide_has_steps_and_is_in_the_table_of_the_page() -> None:
    linked = set(re.findall(r"\(contributing/([\w-]+)\.md", text_of("contributing")))

    assert linked == GUIDES.keys()
    assert all("1. **" in text for text in GUIDES.values())
    assert len(blocks()) > 40


@pytest.mark.parametrize("block", blocks(), ids=lambda block: block[:40])
def test_a_step_names_existing_files_and_their_contents(block: str) -> None:
    files = files_of(block)
    text = "".join(text_in(paths) for paths in files.values())

    assert [span for span, paths in files.items() if not paths] == []
    assert {name for name in names_of(block) if not re.search(rf"\b{name}\b", text)} == set()


def test_the_guide_to_a_field_of_a_result_names_each_file_that_reads_its_example() -> None:
    readers: set[str] = set()
    for room in ("shared", "supervisor", "workers"):
        for path in (ROOT / room).rglob("*"):
            if path.suffix in {".py", ".js"} and READS_NEEDS.search(path.read_text()):
                readers.add(str(path.relative_to(ROOT)))

    named = set(CODE.findall(sections(GUIDES["add-a-field"])["Add a field to a result"]))

    assert len(readers) > 8
    assert readers - named == set()


def names_in_files() -> Iterator[tuple[str, str, list[Path]]]:
    """Yield each name that stands directly before its file, with the file as it is written."""
    for block in blocks():
        files = files_of(block)
        for names, file in IN_FILE.findall(block):
            for name in sorted(names_of(names)):
                yield name, file, files[file]


def test_a_name_before_a_file_is_in_that_file() -> None:
    names = list(names_in_files())
    unknown_files = [file for _, file, paths in names if len(paths) != 1]
    absent = [
        f"{name} ({file})"
        for name, file, paths in names
        if not re.search(rf"\b{name}\b", text_in(paths))
    ]

    assert len(names) > 100, "the search finds the names"
    assert unknown_files == []
    assert absent == []


def test_most_names_stand_before_their_file() -> None:
    assert len(list(names_in_files())) > 60


@pytest.mark.parametrize("room", ["shared", "supervisor", "workers"])
def test_the_table_of_folders_names_every_folder_of_a_room(room: str) -> None:
    (row,) = [row for row in rows(text_of("contributing")) if row[0] == f"`{room}/`"]
    folders = {path.parent.name for path in (ROOT / room).glob("*/__init__.py")}

    assert folders - {span.strip("/") for span in CODE.findall(row[1])} == set()


def test_a_line_outside_of_a_table_has_at_most_120_characters() -> None:
    texts = [text_of("contributing"), *GUIDES.values()]
    lines = [line for text in texts for line in text.splitlines()]

    assert [line for line in lines if len(line) > 120 and not line.lstrip().startswith("|")] == []
