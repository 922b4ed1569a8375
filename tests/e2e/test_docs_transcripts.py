"""The transcripts of README.md and of the first page of the docs show what the commands print.

Times and ids differ from run to run. A figure of tokens may differ by a twentieth, so that small
changes of prompts need no change of the pages.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT
from tests.e2e.commands import DOCUMENTS, Handoff

pytestmark = pytest.mark.slow

README, OFFLINE = ROOT / "README.md", DOCS / "get-started" / "offline.md"
COMPARE = "Compare Qdrant, pgvector and Milvus for a team that needs filtering and durable storage"
ONE_AGENT = "How does HNSW work?"
ENDED = re.compile(
    r"^(?P<name>\w+)(?: \(\w+\))?: ok, (?P<work>.+), (?P<tokens>[\d,]+) tokens$", re.MULTILINE
)
"""A line of the progress about a handoff that has ended."""
CELLS = re.compile(
    r"^(?P<name>\w+\.1) +\w+ +ok +(?P<work>\d+) +(?P<tokens>[\d,]+) +(?P<output>[\d,]+) ",
    re.MULTILINE,
)
"""A row of the table of handoffs."""
Shown = dict[str, tuple[str, int]]
"""Name of a handoff -> its turns and tool calls, and its tokens."""


def shown_in(pattern: re.Pattern[str], text: str) -> Shown:
    rows: Shown = {}
    for match in pattern.finditer(text):
        rows[match["name"]] = (match["work"], int(match["tokens"].replace(",", "")))
    return rows


def check(page: Shown, printed: Shown) -> None:
    """Check that each line of a page is printed, with about the same figure of tokens."""
    assert page
    for name, (work, tokens) in page.items():
        assert printed[name][0] == work, name
        assert printed[name][1] == pytest.approx(tokens, rel=0.05), name


def part_of(page: Path, first: str, end: str) -> str:
    """Return the text of a page from a heading to another."""
    return page.read_text().partition(first)[2].partition(end)[0]


def progress_of(handoff: Handoff, request: str) -> str:
    done = handoff.run("run", request, "--docs", str(DOCUMENTS), HANDOFF_MODE="auto")
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_the_transcripts_of_a_team_are_real(handoff: Handoff) -> None:
    assert COMPARE in README.read_text()
    first_section = part_of(OFFLINE, "## 1.", "## 2.")

    printed = progress_of(handoff, COMPARE)

    check(shown_in(ENDED, README.read_text()), shown_in(ENDED, printed))
    check(shown_in(ENDED, first_section), shown_in(ENDED, printed))
    check(shown_in(CELLS, first_section), shown_in(CELLS, printed))


def test_the_transcript_of_one_agent_is_real(handoff: Handoff) -> None:
    third_section = part_of(OFFLINE, "## 3.", "## 4.")
    assert ONE_AGENT in third_section

    check(shown_in(ENDED, third_section), shown_in(ENDED, progress_of(handoff, ONE_AGENT)))
