"""The researcher: searches, reads, and states only what stands in the documents."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shared.agent.offline.statements import gaps_in, markers_in, unmarked_statements
from tests.shared.agent.offline.asking_the_model import EXAMPLES, Library, ask, client, envelope_schema, work


@pytest.fixture
def library() -> Library:
    return Library.of(EXAMPLES)


def test_every_claim_is_quoted_from_a_document_and_every_statement_points_to_one(library: Library) -> None:
    answer = work("<task>Research Qdrant with regard to filtering and durable storage.</task>", library)
    assert answer["status"] == "ok"
    for claim in answer["claims"]:
        for source in claim["sources"]:
            assert source["quote"] in " ".join(library.texts[source["source"]].split())
    assert list(unmarked_statements(answer["output"])) == []
    assert markers_in(answer["output"]) == {claim["id"] for claim in answer["claims"]}


def test_searches_run_in_parallel_and_then_the_best_hits_are_read(library: Library) -> None:
    work("<task>Research Qdrant with regard to filtering and durable storage.</task>", library)
    names = [name for name, _ in library.calls]
    assert names.count("search_documents") >= 3
    assert names == sorted(names, reverse=True), "searches come first"
    assert library.calls[-1][0] == "read_document"
    assert "qdrant.md" in [arguments["source"] for name, arguments in library.calls if name == "read_document"]


def test_an_aspect_that_no_document_speaks_of_is_named_and_lowers_confidence(library: Library) -> None:
    answer = work("<task>Research Qdrant with regard to filtering and chocolate.</task>", library)
    assert gaps_in(answer["output"]) == ["chocolate (Qdrant)"]
    assert answer["confidence"] < work("<task>Research Qdrant with regard to filtering.</task>", library)["confidence"]


def test_a_thing_that_no_document_knows_is_not_made_up(library: Library) -> None:
    answer = work("<task>Research Oracle with regard to persistence.</task>", library)
    assert (answer["status"], answer["claims"], answer["confidence"]) == ("partial", [], 0.0)
    assert gaps_in(answer["output"]) == ["Oracle"]


def test_without_any_documents_it_asks_for_some() -> None:
    answer = work("<task>Research Qdrant with regard to filtering.</task>", Library({}))
    assert (answer["status"], answer["needs"]) == ("needs_input", "documents about Qdrant")


def test_a_question_far_from_the_documents_gets_no_absurd_answer(library: Library) -> None:
    assert work("<task>Research the question: What is the best pizza in town?</task>", library)["claims"] == []


def test_a_request_that_forbids_tools_is_answered_with_what_there_is(library: Library) -> None:
    tools: Any = library.tools
    answer = ask("<task>Research Qdrant.</task>", envelope_schema(), tools=tools, tool_choice={"type": "none"})
    assert answer["status"] in ("needs_input", "partial")
    assert answer["claims"] == []


def test_whoever_may_not_call_in_parallel_calls_one_tool_at_a_time(library: Library) -> None:
    tools: Any = library.tools
    message = client().messages.create(
        model="offline",
        max_tokens=1_000,
        messages=[{"role": "user", "content": "<task>Research Qdrant with regard to filtering.</task>"}],
        tools=tools,
        tool_choice={"type": "auto", "disable_parallel_tool_use": True},
    )
    assert len(message.content) == 1


def test_a_tool_that_must_be_called_is_called_with_valid_arguments() -> None:
    schema: Any = {
        "type": "object",
        "properties": {"place": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["place", "days"],
    }
    message = client().messages.create(
        model="offline",
        max_tokens=1_000,
        messages=[{"role": "user", "content": "How will the weather be in Oslo?"}],
        tools=[{"name": "weather", "input_schema": schema}],
        tool_choice={"type": "tool", "name": "weather"},
    )
    (block,) = message.content
    assert block.type == "tool_use"
    assert isinstance(block.input["place"], str)
    assert isinstance(block.input["days"], int)


def test_a_search_that_fails_is_not_the_end(library: Library) -> None:
    asked: list[Any] = [{"role": "user", "content": "<task>Research Qdrant with regard to filtering.</task>"}]
    tools: Any = library.tools
    schema = envelope_schema()
    for _ in range(4):
        message = client().messages.create(
            model="offline",
            max_tokens=4_000,
            messages=asked,
            tools=tools,
            output_config={"format": {"type": "json_schema", "schema": schema}},
        )
        if message.stop_reason == "end_turn":
            break
        failed = [
            {"type": "tool_result", "tool_use_id": block.id, "content": "the index is out of order", "is_error": True}
            for block in message.content
            if block.type == "tool_use"
        ]
        asked += [{"role": "assistant", "content": message.to_param()["content"]}, {"role": "user", "content": failed}]
    (block,) = message.content
    assert block.type == "text"
    assert json.loads(block.text)["status"] == "needs_input"


def test_a_claim_that_was_not_accepted_is_not_made_again(library: Library) -> None:
    task = "<task>Research Qdrant with regard to filtering.</task>"
    first = work(task, library)
    search = library.run("search_documents", {"query": "Qdrant filtering"})
    history: list[Any] = [
        {"role": "user", "content": task},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t1", "name": "search_documents", "input": {"query": "Qdrant filtering"}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": search}]},
        {"role": "assistant", "content": json.dumps(first)},
        {"role": "user", "content": f"Your answer cannot be used: {first['claims'][1]['id']}: this quote does not stand in the document"},
    ]
    message = client().messages.create(
        model="offline",
        max_tokens=4_000,
        messages=history,
        output_config={"format": {"type": "json_schema", "schema": envelope_schema()}},
    )
    again = json.loads("".join(block.text for block in message.content if block.type == "text"))
    assert again["claims"]
    assert first["claims"][1]["text"] not in [claim["text"] for claim in again["claims"]]


def test_a_search_result_that_was_cut_in_the_middle_still_counts(library: Library) -> None:
    class Cutting(Library):
        def run(self, name: str, arguments: Any) -> str:
            whole = super().run(name, arguments)
            return f"{whole[: len(whole) * 2 // 3]}\n[cut]"

    assert work("<task>Research Qdrant with regard to filtering.</task>", Cutting(library.texts))["claims"]


def test_whoever_compares_things_alone_writes_a_table(library: Library) -> None:
    answer = work("<task>Compare Qdrant and Milvus with regard to licence</task>", library)
    assert "| Licence |" in answer["output"].replace("  ", " ").replace("  ", " ")
    assert markers_in(answer["output"]) <= {claim["id"] for claim in answer["claims"]}
