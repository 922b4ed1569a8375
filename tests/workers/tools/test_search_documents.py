"""Answers of the tool `search_documents` to the model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from handoff_queue.shared.agent.tool_calls import REPEATED_OUTPUT, SAME_RESULT
from handoff_queue.shared.types.origins import DOCUMENT
from handoff_queue.workers.index.index import DocumentIndex
from handoff_queue.workers.tools.read_document import read_document_tool
from handoff_queue.workers.tools.search_documents import build_search_documents_tool
from tests.workers.tools.contexts import ToolHarness

LONG = "Nothing here. " * 1_000
"""Text that is too long to be shown whole."""


def test_hits_can_be_quoted_and_the_number_of_documents_is_stated(index: DocumentIndex) -> None:
    harness = ToolHarness({"a.md": "Whales sing.", "b.md": LONG})

    answer = json.loads(harness.call(build_search_documents_tool(index), query="whales"))

    assert answer["searched"] == 2
    assert answer["hits"] == [{"source": "a.md", "snippet": "Whales sing."}]


def test_a_hit_in_a_long_document_has_the_offset_to_read_on(index: DocumentIndex) -> None:
    harness = ToolHarness({"a.md": f"{LONG}\n\nWhales sing."})

    (hit,) = json.loads(harness.call(build_search_documents_tool(index), query="whales"))["hits"]

    assert 0 < hit["offset"] <= len(LONG) + 2


def test_short_documents_are_returned_whole_and_only_once(index: DocumentIndex) -> None:
    texts = {"a.md": "Whales sing. " * 20, "b.md": "Cats do not. " * 20}
    harness, tool = ToolHarness(texts), build_search_documents_tool(index)

    output = harness.output(tool, query="whales")

    assert output.origins == (DOCUMENT,)
    for path, text in texts.items():
        assert json.dumps({"source": path, "chars": len(text.strip())}) in output.text
        assert text.strip() in output.text
    harness.context = replace(harness.context, texts_shown=lambda: (output.text,))
    assert harness.output(tool, query="cats") == REPEATED_OUTPUT
    assert harness.call(read_document_tool(), source="a.md") == SAME_RESULT


def test_documents_that_were_read_are_not_returned_again(index: DocumentIndex) -> None:
    harness = ToolHarness({"a.md": 'Whales "sing".\n' * 20})
    read = harness.call(read_document_tool(), source="a.md")
    harness.context = replace(harness.context, texts_shown=lambda: (read,))
    assert harness.call(build_search_documents_tool(index), query="whales") == SAME_RESULT


def test_a_number_as_text_is_understood_and_kept_within_bounds(index: DocumentIndex) -> None:
    harness = ToolHarness({f"{number}.md": f"whale {number}" for number in range(30)} | {"x": LONG})
    tool = build_search_documents_tool(index)

    assert len(json.loads(harness.call(tool, query="whale", limit="3"))["hits"]) == 3
    assert len(json.loads(harness.call(tool, query="whale", limit=1_000))["hits"]) == 20


def test_wrong_arguments_are_explained_without_repeating_them(index: DocumentIndex) -> None:
    tool = build_search_documents_tool(index)

    assert ToolHarness().failure(tool, words="canary") == (
        "search_documents: wrong arguments: query: is missing; words: there is no such field"
    )


@pytest.fixture
def broken_index(tmp_path: Path) -> DocumentIndex:
    (tmp_path / "file").touch()
    return DocumentIndex(tmp_path / "file")


def test_an_index_that_cannot_be_opened_points_to_reading(
    broken_index: DocumentIndex, tmp_path: Path
) -> None:
    tool = build_search_documents_tool(broken_index)

    failure = ToolHarness({"a.md": LONG}).failure(tool, query="text")

    assert "read_document instead" in failure
    assert str(tmp_path) not in failure  # a folder of the host is not for the model


def test_a_job_without_documents_needs_no_index(broken_index: DocumentIndex) -> None:
    answer = json.loads(ToolHarness().call(build_search_documents_tool(broken_index), query="text"))

    assert answer == {"hits": [], "searched": 0}


def test_a_missing_text_is_named(index: DocumentIndex) -> None:
    harness = ToolHarness({"a.md": "whale one", "b.md": "whale two"})
    harness.library.lose("b.md")

    answer = json.loads(harness.call(build_search_documents_tool(index), query="whale"))

    assert answer["not_searched"] == ["b.md"]
