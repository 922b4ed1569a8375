"""Answers of the tool `search_documents` to the model."""

from __future__ import annotations

import json
from pathlib import Path

from handoff_queue.workers.index.index import DocumentIndex
from handoff_queue.workers.tools.search_documents import search_documents_tool
from tests.workers.tools.contexts import ToolHarness


def test_hits_can_be_quoted_and_the_number_of_documents_is_stated(index: DocumentIndex) -> None:
    harness = ToolHarness({"a.md": "Whales sing.", "b.md": "Cats do not."})

    answer = json.loads(harness.call(search_documents_tool(index), query="whales"))

    assert answer["searched"] == 2
    (hit,) = answer["hits"]
    assert (hit["source"], hit["start"], hit["end"], hit["snippet"]) == (
        "a.md",
        0,
        12,
        "Whales sing.",
    )
    assert hit["score"] > 0


def test_a_number_as_text_is_understood_and_kept_within_bounds(index: DocumentIndex) -> None:
    harness = ToolHarness({f"{number}.md": f"whale {number}" for number in range(30)})
    tool = search_documents_tool(index)

    assert len(json.loads(harness.call(tool, query="whale", limit="3"))["hits"]) == 3
    assert len(json.loads(harness.call(tool, query="whale", limit=1_000))["hits"]) == 20


def test_wrong_arguments_are_explained_without_repeating_them(index: DocumentIndex) -> None:
    tool = search_documents_tool(index)

    assert ToolHarness().failure(tool, words="canary") == (
        "search_documents: wrong arguments: query: is missing; words: there is no such field"
    )


def test_an_index_that_cannot_be_opened_points_to_reading(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    tool = search_documents_tool(DocumentIndex(tmp_path / "file"))

    assert "read_document instead" in ToolHarness({"a.md": "text"}).failure(tool, query="text")


def test_a_missing_text_is_named(index: DocumentIndex) -> None:
    harness = ToolHarness({"a.md": "whale one", "b.md": "whale two"})
    harness.library.lose("b.md")

    answer = json.loads(harness.call(search_documents_tool(index), query="whale"))

    assert answer["not_searched"] == ["b.md"]
