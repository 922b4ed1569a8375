"""The transcripts of README.md and of the first page of the docs show what the commands print.

Ids of jobs and times differ from run to run, so lines with an id are not compared. A figure of
tokens may differ by a twentieth, so that small changes of prompts need no change of the pages.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, blocks
from tests.docs.sample_files import write_sample_files
from tests.docs.samples import of_page
from tests.e2e.commands import DOCUMENTS, Handoff
from tests.e2e.test_docs_samples import generalized

pytestmark = pytest.mark.slow

README, OFFLINE = ROOT / "README.md", DOCS / "get-started" / "offline.md"
COMPARE = "Compare Qdrant, pgvector and Milvus for a team that needs filtering and durable storage"
ONE_AGENT = "How does HNSW work?"
ENDED = re.compile(
    r"^(?P<name>\w+)(?: \(\w+\))?: ok, (?P<work>.+), (?P<tokens>[\d,]+) tokens$", re.MULTILINE
)
"""A line of the progress about a handoff that has ended."""
IS_OF_ONE_RUN = re.compile(r"j-(?:[a-z2-7]{16}|[0-9a-f]{12})|^\$ |^starting a private Redis")
"""A line with the id of a job, a typed command, or the start of a private system."""
CELLS = re.compile(
    r"^(?P<name>\w+\.1) +\w+ +ok +(?P<work>\d+) +(?P<tokens>[\d,]+) +(?P<output>[\d,]+) ",
    re.MULTILINE,
)
"""A row of the table of handoffs."""
DEPENDS_ON_SPEED = re.compile(r": works, in \S+$")
"""A line that a fast handoff does not get. The pages say that they leave out these lines."""
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


def check_lines(blocks_of_page: list[str], printed: str) -> None:
    """Check that each line of these blocks is printed. `...` marks lines that are left out."""
    lines = [line for block in blocks_of_page for line in block.splitlines()]
    compared = [
        line
        for line in lines
        if line not in ("", "...") and not IS_OF_ONE_RUN.search(line) and not ENDED.match(line)
    ]
    assert compared
    assert [line for line in compared if line not in printed.splitlines()] == []


def check_no_line_is_missing(transcript: str, printed: str) -> None:
    """Check that a transcript has all lines of the progress up to its first `...`."""
    shown: set[str] = set()
    for line in transcript.splitlines():
        if line == "...":
            break
        shown.add(generalized(line))
    lines = [line for line in printed.splitlines() if not DEPENDS_ON_SPEED.search(line)]
    places = [place for place, line in enumerate(lines) if generalized(line) in shown]
    first, last = places[0], places[-1]

    assert [line for line in lines[first:last] if generalized(line) not in shown] == []


def part_of(page: Path, first: str, end: str) -> str:
    """Return the text of a page from a heading to another."""
    return page.read_text().partition(first)[2].partition(end)[0]


def output_of(handoff: Handoff, request: str) -> str:
    """Return what the command prints to both streams."""
    done = handoff.run("run", request, "--docs", str(DOCUMENTS), HANDOFF_MODE="auto")
    assert done.returncode == 0, done.stderr
    return done.stderr + done.stdout


def test_the_transcripts_of_a_team_are_real(handoff: Handoff) -> None:
    assert COMPARE in README.read_text()
    first_section = part_of(OFFLINE, "## 1.", "## 2.")

    printed = output_of(handoff, COMPARE)

    check(shown_in(ENDED, README.read_text()), shown_in(ENDED, printed))
    check(shown_in(ENDED, first_section), shown_in(ENDED, printed))
    check(shown_in(CELLS, first_section), shown_in(CELLS, printed))
    transcripts = [text for text in blocks(README.read_text(), "console") if COMPARE in text]
    answer = [text for text in blocks(first_section, "text") if "Sources:" in text]
    check_lines(transcripts + answer, printed)
    progress = [text for text in blocks(first_section, "text") if "router: a team" in text]
    for text in transcripts + progress:
        check_no_line_is_missing(text, printed)


def test_the_transcript_of_one_agent_is_real(handoff: Handoff) -> None:
    third_section = part_of(OFFLINE, "## 3.", "## 4.")
    assert ONE_AGENT in third_section

    printed = output_of(handoff, ONE_AGENT)

    check(shown_in(ENDED, third_section), shown_in(ENDED, printed))
    transcripts = [text for text in blocks(third_section, "text") if ONE_AGENT in text]
    check_lines(transcripts, printed)
    (text,) = [text for text in blocks(third_section, "text") if "router: generalist" in text]
    check_no_line_is_missing(text, printed.partition("## How")[0])


def test_the_rows_of_the_workflow_page_are_real(handoff: Handoff) -> None:
    page = "docs/how-to/workflows.md"
    write_sample_files(handoff.folder)
    command = of_page(page, "console", "rows.csv")

    done = handoff.run(*shlex.split(command)[2:], HANDOFF_MODE="auto")

    assert done.returncode == 0, done.stderr
    assert (handoff.folder / "rows.csv").read_text().rstrip("\n") == (
        of_page(page, "text", "key,n,step").rstrip("\n")
    )
