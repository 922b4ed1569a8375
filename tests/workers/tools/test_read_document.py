"""Reading a document a piece at a time."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.workers.tools.read_document import MOST_CHARS, read_document_tool
from tests.workers.tools.contexts import Desk

TOOL = read_document_tool()


@given(st.integers(min_value=1, max_value=4 * MOST_CHARS))
def test_reading_on_from_the_end_of_the_text_gives_the_whole(length: int) -> None:
    text = "".join(chr(97 + position % 26) for position in range(length))
    desk = Desk({"a.md": text})
    read = ""

    while len(read) < length:
        answer = json.loads(desk.call(TOOL, source="a.md", offset=len(read)))
        assert answer["offset"] == len(read)
        assert answer["total_chars"] == length
        assert 0 < len(answer["text"]) <= MOST_CHARS
        read += answer["text"]

    assert read == text


@pytest.mark.parametrize("source", ["./docs/guide.md", "guide.md", "GUIDE.md"])
def test_a_source_that_can_only_mean_one_document_is_enough(source: str) -> None:
    desk = Desk({"docs/guide.md": "text", "other.md": "x"})

    assert json.loads(desk.call(TOOL, source=source))["source"] == "docs/guide.md"


def test_a_source_may_be_named_in_another_normal_form() -> None:
    desk = Desk({"cafe\u0301.md": "text"})

    assert json.loads(desk.call(TOOL, source="caf\u00e9.md"))["source"] == "cafe\u0301.md"


def test_an_unknown_source_gets_suggestions() -> None:
    desk = Desk({"docs/postgres.md": "x", "docs/redis.md": "y"})

    assert "did you mean docs/postgres.md" in desk.failure(TOOL, source="docs/postgre.md")


def test_a_job_without_documents_says_so() -> None:
    assert Desk().failure(TOOL, source="a.md") == "this job has no documents"


def test_an_offset_beyond_the_end_gives_nothing_more() -> None:
    answer = json.loads(Desk({"a.md": "text"}).call(TOOL, source="a.md", offset=99))

    assert answer == {"source": "a.md", "offset": 4, "total_chars": 4, "text": ""}
