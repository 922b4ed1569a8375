"""The walkthroughs of docs/contributing.md name files, functions and fields that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, sections, text_of

WALKTHROUGHS = {
    heading: body
    for heading, body in sections(text_of("contributing")).items()
    if heading in ("Add an event", "Add a command", "Add a limit to the budget accounts")
}
ROOMS = ("shared", "supervisor", "workers", "chaos", "tests")
OF_THE_EXAMPLE = {"max_things", "keep_things"}
"""Names that the reader adds."""
CODE = re.compile(r"`([^`\n]+)`")
ITEM = re.compile(r"^\d+\. .*(?:\n   .*)*", re.MULTILINE)
FILE = re.compile(r"[\w./]+\.(?:py|lua|jsonl)|[\w/]+/")
NAME = re.compile(r"[A-Za-z_]*[A-Z_]\w*")
"""A name of code: with a capital or an underscore. Names of commands and fields are not."""


def items() -> list[str]:
    return [item for body in WALKTHROUGHS.values() for item in ITEM.findall(body)]


def files_of(item: str) -> dict[str, list[Path]]:
    """Return the files that each path of an item stands for. A bare file name stands for the
    only file of that name, or for the one in the folder of a path of the item. A folder stands
    for all of its files.
    """
    files: dict[str, list[Path]] = {}
    for span in filter(FILE.fullmatch, CODE.findall(item)):
        if span.endswith("/"):
            files[span] = [path for path in (ROOT / span).rglob("*") if path.is_file()]
        elif "/" in span:
            files[span] = [path for path in [ROOT / span] if path.exists()]
    folders = {path.parent for paths in files.values() for path in paths}
    for span in filter(FILE.fullmatch, CODE.findall(item)):
        if "/" not in span:
            paths = [path for room in ROOMS for path in (ROOT / room).rglob(span)]
            beside = [path for path in paths if path.parent in folders]
            files[span] = beside if len(paths) > 1 else paths
    return files


def test_each_walkthrough_has_steps() -> None:
    assert len(WALKTHROUGHS) == 3
    assert len(items()) > 20


@pytest.mark.parametrize("item", items(), ids=lambda item: item[:40])
def test_a_step_names_existing_files_and_their_contents(item: str) -> None:
    files = files_of(item)
    text = "".join(
        path.read_text() for paths in files.values() for path in paths if path.suffix != ".pyc"
    )
    names = {span for span in CODE.findall(item) if NAME.fullmatch(span)} - OF_THE_EXAMPLE

    assert [span for span, paths in files.items() if not paths] == []
    assert {name for name in names if not re.search(rf"\b{name}\b", text)} == set()
