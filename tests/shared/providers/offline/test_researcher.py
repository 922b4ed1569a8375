"""The researcher: searches, reads, and states only what stands in the documents."""

from __future__ import annotations

import json
from typing import Any

import pytest

from handoff_queue.shared.providers.offline.statements import (
    gaps_in,
    markers_in,
    unmarked_statements,
)
from tests.shared.providers.offline.asking_the_model import (
    EXAMPLES,
    Library,
    ask,
    client,
    envelope_schema,
    work,
)


@pytest.fixture
def library() -> Library:
    return Library.of(EXAMPLES)


def test_every_claim_is_quoted_from_a_document_and_every_statement_points_to_one(
    library: Library,
) -> None:
    answer = work(
        "<task>Research Qdrant with regard to filtering and durable storage.</task>", library
    )
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
    assert "qdrant.md" in [
        arguments["source"] for name, arguments in library.calls if name == "read_document"
    ]


def test_an_aspect_that_no_document_speaks_of_is_named_and_lowers_confidence(
    library: Library,
) -> None:
    answer = work("<task>Research Qdrant with regard to filtering and chocolate.</task>", library)
    assert gaps_in(answer["output"]) == ["chocolate (Qdrant)"]
    assert (
        answer["confidence"]
        < work("<task>Research Qdrant with regard to filtering.</task>", library)["confidence"]
    )


def test_a_thing_that_no_document_knows_is_not_made_up(library: Library) -> None:
    answer = work("<task>Research Oracle with regard to persistence.</task>", library)
    assert (answer["status"], answer["claims"], answer["confidence"]) == ("partial", [], 0.0)
    assert gaps_in(answer["output"]) == ["Oracle"]


def test_without_any_documents_it_asks_for_some() -> None:
    answer = work("<task>Research Qdrant with regard to filtering.</task>", Library({}))
    assert (answer["status"], answer["needs"]) == ("needs_input", "documents about Qdrant")


def test_a_question_far_from_the_documents_gets_no_absurd_answer(library: Library) -> None:
    assert (
        work("<task>Research the question: What is the best pizza in town?</task>", library)[
            "claims"
        ]
        == []
    )


def test_a_request_that_forbids_tools_is_answered_with_what_there_is(library: Library) -> None:
    tools: Any = library.tools
    answer = ask(
        "<task>Research Qdrant.</task>",
        envelope_schema(),
        tools=tools,
        tool_choice={"type": "none"},
    )
    assert answer["status"] in ("needs_input", "partial")
    assert answer["claims"] == []


def test_whoever_may_not_call_in_parallel_calls_one_tool_at_a_time(library: Library) -> None:
    tools: Any = library.tools
    message = client().messages.create(
        model="offline",
        max_tokens=1_000,
        messages=[
            {"role": "user", "content": "<task>Research Qdrant with regard to filtering.</task>"}
        ],
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
    asked: list[Any] = [
        {"role": "user", "content": "<task>Research Qdrant with regard to filtering.</task>"}
    ]
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
            {
                "type": "tool_result",
                "tool_use_id": block.id,
                "content": "the index is out of order",
                "is_error": True,
            }
            for block in message.content
            if block.type == "tool_use"
        ]
        asked += [
            {"role": "assistant", "content": message.to_param()["content"]},
            {"role": "user", "content": failed},
        ]
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
            "content": [
                {
                    "type": "tool_use",
                    "id": "t1",
                    "name": "search_documents",
                    "input": {"query": "Qdrant filtering"},
                }
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t1", "content": search}],
        },
        {"role": "assistant", "content": json.dumps(first)},
        {
            "role": "user",
            "content": f"Your answer cannot be used: {first['claims'][1]['id']}: this quote does not stand in the document",
        },
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

    assert work("<task>Research Qdrant with regard to filtering.</task>", Cutting(library.texts))[
        "claims"
    ]


def test_whoever_compares_things_alone_writes_a_table(library: Library) -> None:
    answer = work("<task>Compare Qdrant and Milvus with regard to licence</task>", library)
    assert "| Licence |" in answer["output"].replace("  ", " ").replace("  ", " ")
    assert markers_in(answer["output"]) <= {claim["id"] for claim in answer["claims"]}


INCIDENTS = """# Incident log

## 2 March: checkout down

At 09:14 the checkout stopped answering. Its cause was an expired certificate. 1,240 orders were lost.

## 17 April: slow search

Search latency rose to 8 seconds. A missing index caused it. No orders were lost.
"""


LOG = Library(
    {"incidents.md": INCIDENTS, "runbook.md": "# Runbook\n\nAnswer a page within 15 minutes."}
)


def test_a_subject_that_is_a_document_is_told_by_how_its_sections_begin() -> None:
    answer = work(
        '<task>Research the subject: the incident log</task>\n<documents count="1"> <data>incidents.md</data> </documents>',
        LOG,
    )
    assert [claim["text"] for claim in answer["claims"]] == [
        "At 09:14 the checkout stopped answering.",
        "Search latency rose to 8 seconds.",
    ]


def test_all_documents_are_told_when_no_other_subject_is_named() -> None:
    two = Library(
        {
            "a.md": "# Aero\n\nAero is a thin laptop. It is old.",
            "b.md": "# Borealis\n\nBorealis is a heavy laptop.",
        }
    )
    shown = '<documents count="2"> <data>a.md\nb.md</data> </documents>'
    answer = work(f"<task>Research the subject: the documents</task>\n{shown}", two)
    assert [claim["text"] for claim in answer["claims"]] == [
        "Aero is a thin laptop.",
        "Borealis is a heavy laptop.",
    ]


def test_answers_out_of_several_sections_say_which_one_each_is_from() -> None:
    answer = work("<task>Research the question: How many orders were lost?</task>", LOG)
    assert [claim["text"] for claim in answer["claims"]] == [
        "2 March: checkout down: 1,240 orders were lost.",
        "17 April: slow search: No orders were lost.",
    ]
    assert [claim["sources"][0]["quote"] for claim in answer["claims"]] == [
        "1,240 orders were lost.",
        "No orders were lost.",
    ]


def test_things_that_answer_which_are_named_by_their_documents_titles() -> None:
    two = Library(
        {
            "a.md": "# Aero\n\nBattery life is 14 hours.",
            "b.md": "# Borealis\n\nThe Borealis has a battery life of 6 hours.",
        }
    )
    answer = work(
        "<task>Research the question: Which laptop has the longest battery life?</task>", two
    )
    assert {claim["text"] for claim in answer["claims"]} == {
        "Aero: Battery life is 14 hours.",
        "The Borealis has a battery life of 6 hours.",
    }


def test_a_name_is_known_in_its_possessive(library: Library) -> None:
    answer = work("<task>Research the question: What is Qdrant's licence?</task>", library)
    assert any("Apache" in claim["text"] for claim in answer["claims"])


def test_causes_are_found_by_whatever_form_of_the_word() -> None:
    answer = work(
        "<task>Research the question: What caused the incidents, and how long did they last?</task>",
        LOG,
    )
    assert (
        len(
            [
                claim
                for claim in answer["claims"]
                if "certificate" in claim["text"] or "index" in claim["text"]
            ]
        )
        == 2
    )


def test_a_price_is_money_and_not_whatever_costs_something() -> None:
    docs = Library(
        {
            "m.md": "# Milvus\n\nMilvus is a database. A stronger level costs latency.",
            "a.md": "# Aero\n\nAero sells for $999.",
        }
    )
    assert gaps_in(work("<task>Research Milvus with regard to price.</task>", docs)["output"]) == [
        "price (Milvus)"
    ]
    assert "$999" in work("<task>Research Aero with regard to price.</task>", docs)["output"]
