"""The offline specialist searches and reads, and states only the content of documents and
results.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from handoff_queue.shared.providers.offline.citations import (
    CANNOT_ANSWER,
    MissingFact,
    find_markers,
    iterate_unmarked_statements,
    parse_gaps,
)
from tests.shared.providers.offline.offline_requests import (
    EXAMPLES,
    Library,
    a_result,
    ask,
    client,
    envelope_schema,
    work,
)

FARM = Library(
    {
        "tractors.md": (
            "# Tractors\n\n## Halden 40\n\nThe Halden 40 is a small tractor. It costs 18,500"
            " euros.\n\n### Repairs\n\nThe clutch was replaced in March.\n\n## Morrow E\n\nThe"
            " Morrow E is an electric tractor. It runs for six hours.\n\n### Repairs\n\nNo repair"
            " was needed so far.\n"
        ),
        "meeting.txt": (
            "Notes of the meeting\n\nBruno asked for a charging station next to the barn.\n"
            "The budget is 3,200 euros.\n"
        ),
        "fuel.csv": "month,tractor,litres\nMarch,Halden 40,210\nApril,Halden 40,305\n",
        "weinberg.md": "# Der Weinberg\n\nDer Weinberg wurde 1998 über dem Fluss angelegt.\n",
    }
)


@pytest.fixture
def library() -> Library:
    return Library.of(EXAMPLES)


def texts_of(answer: dict[str, Any]) -> list[str]:
    return [claim["text"] for claim in answer["claims"]]


def gap_texts(answer: dict[str, Any]) -> list[str]:
    return [gap.text for gap in parse_gaps(answer["output"])]


def check_citations(answer: dict[str, Any], library: Library) -> None:
    """Check that every statement has a marker, and that every quote is in its document."""
    assert list(iterate_unmarked_statements(answer["output"])) == []
    assert find_markers(answer["output"]) == {claim["id"] for claim in answer["claims"]}
    for claim in answer["claims"]:
        for source in claim["sources"]:
            assert source["quote"] in " ".join(library.texts[source["source"]].split())


@pytest.mark.parametrize(
    "task",
    [
        "Research Qdrant with regard to filtering and durable storage.",
        "Research the question: How does HNSW work?",
        "Compare Qdrant and Milvus with regard to licence",
    ],
)
def test_every_statement_is_cited_with_a_quote_from_a_document(task: str, library: Library) -> None:
    answer = work(f"<task>{task}</task>", library)

    assert answer["status"] == "ok"
    check_citations(answer, library)


def test_searches_come_first_and_then_the_best_documents_are_read(library: Library) -> None:
    work("<task>Research Qdrant with regard to filtering and durable storage.</task>", library)
    names = [name for name, _ in library.calls]

    assert names.count("search_documents") == 3
    assert names == sorted(names, reverse=True)
    assert "qdrant.md" in [arguments.get("source") for _, arguments in library.calls]


def test_an_aspect_without_a_sentence_is_named_and_lowers_confidence(library: Library) -> None:
    answer = work("<task>Research Qdrant with regard to filtering and chocolate.</task>", library)
    full = work("<task>Research Qdrant with regard to filtering.</task>", library)

    assert gap_texts(answer) == ['the words "chocolate" (Qdrant)']
    assert answer["confidence"] < full["confidence"]


def test_a_subject_that_no_document_mentions_is_not_made_up(library: Library) -> None:
    answer = work("<task>Research Oracle with regard to persistence.</task>", library)

    assert (answer["status"], answer["claims"], answer["confidence"]) == ("partial", [], 0.0)
    assert gap_texts(answer) == ["Oracle"]


def test_a_question_with_mostly_unknown_words_gets_no_answer(library: Library) -> None:
    answer = work("<task>Research the question: What is the best pizza in town?</task>", library)

    assert answer["claims"] == []
    assert gap_texts(answer) == ['an answer to "What is the best pizza in town?"']


def test_a_word_of_the_question_that_no_document_has_is_named() -> None:
    answer = work("<task>What was decided about the charging station?</task>", FARM)

    assert "charging station" in texts_of(answer)[0]
    assert parse_gaps(answer["output"]) == [MissingFact('the words "decided"', "meeting.txt")]


def test_without_documents_the_specialist_asks_for_some() -> None:
    answer = work("<task>Research Qdrant with regard to filtering.</task>", Library({}))

    assert (answer["status"], answer["needs"]) == ("needs_input", "documents about Qdrant")


def test_without_documents_a_question_is_quoted_as_a_question() -> None:
    answer = work("<task>How do orders A-1042 and A-1043 stand?</task>", Library({}))

    assert answer["needs"] == 'documents that answer "How do orders A-1042 and A-1043 stand?"'


def test_work_that_quotes_cannot_do_is_refused(library: Library) -> None:
    answer = work("<task>Write a poem about Qdrant.</task>", library)

    assert (answer["status"], answer["claims"], library.calls) == ("partial", [], [])
    assert answer["output"].startswith(CANNOT_ANSWER)


def test_a_request_that_forbids_tools_is_answered_without_them(library: Library) -> None:
    tools: Any = library.tools
    answer = ask(
        "<task>Research Qdrant.</task>",
        envelope_schema(),
        tools=tools,
        tool_choice={"type": "none"},
    )

    assert (answer["status"], answer["claims"]) == ("needs_input", [])


def test_tools_that_fail_are_not_called_again(library: Library) -> None:
    messages: list[Any] = [{"role": "user", "content": "<task>Research Qdrant.</task>"}]
    tools: Any = library.tools
    schema: Any = {"format": {"type": "json_schema", "schema": envelope_schema()}}
    for _ in range(2):
        message = client().messages.create(
            model="offline", max_tokens=4_000, messages=messages, tools=tools, output_config=schema
        )
        messages.append({"role": "assistant", "content": message.to_param()["content"]})
        failed = []
        for block in message.content:
            if block.type == "tool_use":
                result = {"type": "tool_result", "tool_use_id": block.id, "content": "broken"}
                failed.append({**result, "is_error": True})
        messages.append({"role": "user", "content": failed})

    (block,) = message.content
    assert block.type == "text"
    assert json.loads(block.text)["status"] == "needs_input"


def test_a_search_result_that_was_cut_still_counts(library: Library) -> None:
    class CuttingLibrary(Library):
        def run(self, name: str, arguments: Any) -> str:
            whole = super().run(name, arguments)
            return f"{whole[: len(whole) * 2 // 3]}\n[cut]"

    task = "<task>Research Qdrant with regard to filtering.</task>"
    assert work(task, CuttingLibrary(library.texts))["claims"]


# Any documents


def test_a_fact_at_the_end_of_a_long_document_is_quoted() -> None:
    filler = "".join(
        f"Entry {number} of the log is about the weather.\n\n" for number in range(900)
    )
    library = Library({"log.txt": f"{filler}The bridge was closed in Lund.\n"})

    answer = work("<task>Where was the bridge closed?</task>", library)

    assert texts_of(answer) == ["The bridge was closed in Lund."]


def test_notes_that_contradict_each_other_are_both_quoted() -> None:
    library = Library(
        {
            "march.md": "The trial collection held 40,000,000 vectors in March 2026.\n",
            "report.md": "The trial collection held 55,000,000 vectors in March 2026.\n",
        }
    )

    answer = work("<task>How many vectors did the trial collection hold?</task>", library)

    assert len(texts_of(answer)) == 2


def test_two_subjects_of_one_document_are_compared_by_their_common_headings() -> None:
    answer = work("<task>Compare the Halden 40 and the Morrow E</task>", FARM)
    table = [line for line in answer["output"].splitlines() if line.startswith("|")]

    assert table[0].split("|")[1:-1] != []
    assert [cell.strip() for cell in table[0].split("|")] == ["", "", "Halden 40", "Morrow E", ""]
    assert [row.split("|")[1].strip() for row in table[2:]] == ["Repairs"]
    assert "It costs 18,500 euros" in answer["output"]
    check_citations(answer, FARM)


def test_a_sentence_without_its_subject_gets_the_headings_above() -> None:
    answer = work("<task>How long does the Morrow E run?</task>", FARM)

    assert "Tractors, Morrow E: It runs for six hours." in texts_of(answer)


def test_rows_of_a_table_are_quoted_with_the_names_of_their_columns() -> None:
    answer = work("<task>How many litres did the Halden 40 need in April?</task>", FARM)

    assert "April: tractor Halden 40, litres 305" in texts_of(answer)
    check_citations(answer, FARM)


def test_documents_in_another_language_are_quoted() -> None:
    answer = work("<task>Wann wurde der Weinberg angelegt?</task>", FARM)

    assert texts_of(answer) == ["Der Weinberg wurde 1998 über dem Fluss angelegt."]
    check_citations(answer, FARM)


def test_without_a_subject_each_document_is_summarized_by_the_first_sentences_of_its_sections() -> (
    None
):
    shown = "\n".join(FARM.texts)
    documents = f'<documents count="{len(FARM.texts)}"> <data>{shown}</data> </documents>'
    answer = work(f"<task>Summarise the documents</task>\n{documents}", FARM)

    sources = {claim["sources"][0]["source"] for claim in answer["claims"]}
    assert sources == set(FARM.texts)


def test_a_task_that_names_a_document_is_answered_from_that_document() -> None:
    shown = "\n".join(FARM.texts)
    documents = f'<documents count="{len(FARM.texts)}"> <data>{shown}</data> </documents>'
    task = "Objective: summarise one document, meeting.txt.\n\nRequest:\nSummarise"
    answer = work(f"<task>{task}</task>\n{documents}", FARM)

    assert {claim["sources"][0]["source"] for claim in answer["claims"]} == {"meeting.txt"}


# Answers from earlier results

QDRANT = "Qdrant filters on the payload."
MILVUS = "Milvus filters with boolean expressions."


def answer_to(request: str, *results: str) -> dict[str, Any]:
    task = f"<task>Write the answer.\nRequest: {request}</task>"
    answer = ask("\n\n".join([task, *results]), envelope_schema())
    assert isinstance(answer, dict)
    return answer


def test_a_writer_states_the_claims_of_the_results_with_their_markers() -> None:
    results = a_result("research_qdrant", QDRANT), a_result("research_milvus", MILVUS)
    answer = answer_to("Compare Qdrant and Milvus for filtering", *results)

    assert (answer["status"], answer["claims"]) == ("ok", [])
    assert "Qdrant filters on the payload [research_qdrant.c1]." in answer["output"]
    assert "Milvus filters with boolean expressions [research_milvus.c1]." in answer["output"]
    assert list(iterate_unmarked_statements(answer["output"])) == []


def test_a_heading_that_several_subjects_have_is_a_row_of_the_table() -> None:
    results = []
    for subject in ("Aero", "Fjord", "Cobalt", "Delta"):
        step = subject.lower()
        output = f"## Weight\n\n- {subject} weighs 2 kg [{step}.c1]."
        results.append(a_result(step, f"{subject} weighs 2 kg.", output=output))
    three = answer_to("Compare Aero, Fjord and Cobalt", *results[:3])["output"]
    four = answer_to("Compare Aero, Fjord, Cobalt and Delta", *results)["output"]

    assert first_cells(three) == ["", "------", "Weight"]
    assert first_cells(four) == ["", "------", "Aero", "Fjord", "Cobalt", "Delta"]
    assert "| weighs 2 kg [aero.c1] " in three


def first_cells(output: str) -> list[str]:
    return [line.split("|")[1].strip() for line in output.splitlines() if line.startswith("|")]


def test_the_columns_of_a_table_are_aligned_after_markers_become_numbers() -> None:
    results = []
    for subject in ("Aero", "Fjord"):
        output = f"## Weight\n\n- {subject} weighs it [{subject.lower()}.c1]."
        results.append(a_result(subject.lower(), f"{subject} weighs it.", output=output))
    output = answer_to("Compare Aero and Fjord", *results)["output"]
    numbered = output.replace("[aero.c1]", "[1]").replace("[fjord.c1]", "[2]")
    rows = [line for line in numbered.splitlines() if line.startswith("|")]

    assert len(rows) == 3
    assert len({len(row) for row in rows}) == 1


def test_a_subject_without_results_is_named_and_the_answer_is_partial() -> None:
    failed = '<result step="milvus" status="failed"> <data></data> </result>'
    answer = answer_to("Compare Qdrant and Milvus", a_result("qdrant", QDRANT), failed)

    assert answer["status"] == "partial"
    assert gap_texts(answer) == ["anything from milvus (failed)", "Milvus"]


def test_a_result_that_repeats_claims_of_another_result_is_not_missing() -> None:
    repeated = a_result("write", output="Qdrant filters on the payload [find.c1].")
    output = answer_to("What does Qdrant filter on?", a_result("find", QDRANT), repeated)["output"]

    assert parse_gaps(output) == []


def test_agreeing_results_are_stated_once() -> None:
    results = a_result("one", QDRANT), a_result("two", QDRANT)
    output = answer_to("What does Qdrant filter on?", *results)["output"]

    assert output.count("Qdrant filters on the payload") == 1


def test_without_any_claims_only_the_gap_is_written() -> None:
    answer = answer_to("What is Qdrant?", a_result("find", output="", status="needs_input"))

    assert answer["status"] == "partial"
    assert answer["output"] == "Not found in the results: anything from find (needs_input)."


def test_the_claims_before_the_cut_of_a_long_result_are_stated() -> None:
    result = a_result("find", QDRANT, MILVUS)
    cut = result[: result.index("Milvus filters with boolean expressions.", result.index("c2"))]
    answer = answer_to("What do they filter on?", f"{cut}\n[cut]</data> </result>")

    assert find_markers(answer["output"]) == {"find.c1"}
