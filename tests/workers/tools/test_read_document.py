"""The tool `read_document` reads a document in parts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.workers.tools.read_document import MAX_CHARS, read_document_tool
from tests.workers.tools.contexts import ToolHarness, page_in

TOOL = read_document_tool()


@given(st.integers(min_value=1, max_value=4 * MAX_CHARS))
def test_reading_from_each_end_on_gives_the_whole_text(length: int) -> None:
    text = "".join(chr(97 + position % 26) for position in range(length))
    harness = ToolHarness({"a.md": text})
    read = ""

    while len(read) < length:
        answer = page_in(harness.call(TOOL, source="a.md", offset=len(read)))
        assert answer["offset"] == len(read)
        assert answer["total_chars"] == length
        assert 0 < len(answer["text"]) <= MAX_CHARS
        read += answer["text"]

    assert read == text


@pytest.mark.parametrize(
    "source",
    ["./docs/guide.md", "guide.md", "GUIDE.md", "docs/guide.md (1,298 characters): # Guide"],
)
def test_a_source_that_can_only_mean_one_document_is_enough(source: str) -> None:
    harness = ToolHarness({"docs/guide.md": "text", "other.md": "x"})

    assert page_in(harness.call(TOOL, source=source))["source"] == "docs/guide.md"


def test_a_path_may_look_like_a_path_with_its_size() -> None:
    harness = ToolHarness({"tweet (280 characters).md": "text", "other.md": "x"})

    source = "tweet (280 characters).md"
    assert page_in(harness.call(TOOL, source=source))["source"] == source


def test_a_source_may_be_named_in_another_normal_form() -> None:
    harness = ToolHarness({"cafe\u0301.md": "text"})

    assert page_in(harness.call(TOOL, source="caf\u00e9.md"))["source"] == "cafe\u0301.md"


def test_the_newest_of_several_pages_with_one_name_is_opened_and_a_digest_opens_each() -> None:
    harness = ToolHarness()
    old = harness.context.keep_document("https://example.org/", "text/html", "Open until 18.")
    new = harness.context.keep_document("https://example.org/", "text/html", "Open until 20.")
    harness.context = replace(harness.context, load_fetched_pages=lambda: (new, old))

    read = [page_in(harness.call(TOOL, source=name))["text"] for name in (old.path, old.digest)]
    assert read == ["Open until 20.", "Open until 18."]


def test_an_unknown_source_gets_suggestions() -> None:
    harness = ToolHarness({"docs/postgres.md": "x", "docs/redis.md": "y"})

    assert "did you mean docs/postgres.md" in harness.failure(TOOL, source="docs/postgre.md")


def test_an_unknown_source_that_is_like_no_document_gets_the_names() -> None:
    harness = ToolHarness({f"doc{number}.md": "x" for number in range(7)})
    assert harness.failure(TOOL, source="https://example.org/search") == (
        "no document 'https://example.org/search'; the documents are doc0.md, doc1.md, doc2.md,"
        " doc3.md, doc4.md and 2 more (search_documents finds more)"
    )


def test_a_job_without_documents_says_so() -> None:
    assert ToolHarness().failure(TOOL, source="a.md") == "this job has no documents"


def test_an_offset_beyond_the_end_gives_nothing_more() -> None:
    answer = page_in(ToolHarness({"a.md": "text"}).call(TOOL, source="a.md", offset=99))

    assert answer == {"source": "a.md", "offset": 4, "total_chars": 4, "text": ""}


@pytest.mark.parametrize("label", ["doc-2", "Doc-2", " doc-2 "])
def test_a_label_of_a_planner_reads_the_document_with_this_number(label: str) -> None:
    harness = ToolHarness({"a.md": "text", "b.md": "x"})

    assert page_in(harness.call(TOOL, source=label))["source"] == "b.md"
