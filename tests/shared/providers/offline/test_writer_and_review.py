"""The writer says nothing without a marker, the reviewer finds what is missing, the
synthesizer names disagreements.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from handoff_queue.shared.providers.offline.statements import (
    gaps_in,
    markers_in,
    unmarked_statements,
)
from tests.shared.providers.offline.asking_the_model import VERDICT_SCHEMA, ask, envelope_schema

QDRANT = "Qdrant filters on the payload."
MILVUS = "Milvus filters with boolean expressions."


def _result(
    step: str, *claims: str, output: str | None = None, status: str = "ok", source: str = "a.md"
) -> str:
    listed = [
        {"id": f"{step}.c{number}", "text": text, "sources": [{"source": source, "quote": text}]}
        for number, text in enumerate(claims, 1)
    ]
    said = (
        output
        if output is not None
        else " ".join(f"{text[:-1]} [{step}.c{number}]." for number, text in enumerate(claims, 1))
    )
    return f'<result step="{step}" status="{status}"> <data>{json.dumps({"output": said, "claims": listed})}</data> </result>'


def _written(request: str, *results: str, more: str = "") -> dict[str, Any]:
    answer = ask(
        "\n\n".join([f"<task>Write the answer.\nRequest: {request}</task>", *results, more]),
        envelope_schema(),
    )
    assert isinstance(answer, dict)
    return answer


def _verdict(request: str, *results: str) -> dict[str, Any]:
    verdict = ask(
        "\n\n".join([f"<task>Judge the results.\n\nRequest:\n{request}</task>", *results]),
        VERDICT_SCHEMA,
    )
    assert isinstance(verdict, dict)
    return verdict


def test_a_comparison_is_a_table_whose_every_cell_is_proven() -> None:
    output = _written(
        "Compare Qdrant and Milvus for filtering",
        _result("research_qdrant", QDRANT),
        _result("research_milvus", MILVUS),
    )["output"]
    assert "filters on the payload [research_qdrant.c1]" in output
    assert "filters with boolean expressions [research_milvus.c1]" in output
    assert list(unmarked_statements(output)) == []


def test_the_columns_of_a_table_line_up_once_markers_are_numbers() -> None:
    output = _written(
        "Compare Qdrant and Milvus for filtering",
        _result("research_qdrant", QDRANT),
        _result("research_milvus", MILVUS),
    )["output"]
    numbered = output.replace("[research_qdrant.c1]", "[1]").replace("[research_milvus.c1]", "[2]")
    rows = [line for line in numbered.splitlines() if line.startswith("|")]
    assert len({tuple(index for index, char in enumerate(row) if char == "|") for row in rows}) == 1


def test_a_thing_without_results_is_named_and_the_answer_is_partial() -> None:
    failed = '<result step="research_milvus" status="failed"> <data>{"output": null, "claims": [], "problem": "no tool"}</data> </result>'
    answer = _written(
        "Compare Qdrant and Milvus for filtering", _result("research_qdrant", QDRANT), failed
    )
    assert answer["status"] == "partial"
    assert any("milvus" in gap.lower() for gap in gaps_in(answer["output"]))


def test_what_two_steps_found_alike_is_said_once() -> None:
    output = _written(
        "What does Qdrant filter on?", _result("one", QDRANT), _result("two", QDRANT)
    )["output"]
    assert output.count("Qdrant filters on the payload") == 1


def test_a_claim_that_answers_two_aspects_stands_in_both_cells_when_nothing_else_does() -> None:
    both = [
        "Aero weighs 1.1 kg and costs $999.",
        "Fjord weighs 990 grams.",
        "Fjord sells for 1,599 dollars.",
    ]
    output = _written("Compare Aero and Fjord by weight and price", _result("find", *both))[
        "output"
    ]
    assert "not found" not in output
    assert output.count("weighs 1.1 kg and costs $999 [find.c1]") == 2


def test_more_things_than_fit_side_by_side_stand_one_below_the_other() -> None:
    names = ["Aero", "Borealis", "Cobalt", "Delta"]
    output = _written(
        "Compare Aero, Borealis, Cobalt and Delta by weight",
        _result("find", *(f"{name} weighs 2 kg." for name in names)),
    )["output"]
    rows = [line.split("|")[1].strip() for line in output.splitlines() if line.startswith("|")]
    assert rows == ["", "-" * 8, *names]


def test_a_cell_does_not_repeat_what_its_row_and_column_say() -> None:
    output = _written(
        "Compare Aero and Fjord by weight",
        _result("find", "Aero: weight: 1.1 kg.", "The Fjord weighs 990 grams."),
    )["output"]
    assert "| 1.1 kg [find.c1]" in output
    assert "| weighs 990 grams [find.c2]" in output


def test_a_statement_that_the_reviewer_objects_to_is_dropped() -> None:
    feedback = f'<feedback author="assessor">Cite or drop this statement: "{QDRANT}"</feedback>'
    output = _written("What do they filter on?", _result("find", QDRANT, MILVUS), more=feedback)[
        "output"
    ]
    assert QDRANT[:-1] not in output
    assert MILVUS[:-1] in output


def test_without_any_claims_nothing_is_written_but_what_is_missing() -> None:
    answer = _written("What is Qdrant?", _result("find", output="", status="needs_input"))
    assert answer["status"] == "partial"
    assert list(unmarked_statements(answer["output"])) == []
    assert markers_in(answer["output"]) == set()


def test_a_good_result_passes() -> None:
    assert _verdict("What does Qdrant filter on?", _result("find", QDRANT)) == {
        "verdict": "PASS",
        "revisions": [],
        "open_points": [],
    }


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (
            _result(
                "find", QDRANT, output=f"{QDRANT} It is loved by everybody who tries it [find.c1]."
            ),
            QDRANT,
        ),
        (_result("find", QDRANT, output="Qdrant filters on the payload [find.c7]."), "find.c7"),
        (_result("find", output=""), "empty"),
        (_result("find", output="x", status="failed"), "failed"),
    ],
)
def test_a_result_that_is_not_good_enough_goes_back_with_its_problem(
    result: str, problem: str
) -> None:
    verdict = _verdict("What does Qdrant filter on?", result)
    assert verdict["verdict"] == "REVISE"
    assert [each["step"] for each in verdict["revisions"]] == ["find"]
    assert problem in verdict["revisions"][0]["problem"]


def test_a_part_of_the_request_that_nobody_speaks_of_goes_back_to_the_last_step() -> None:
    verdict = _verdict(
        "Compare Qdrant and Milvus for filtering and licence",
        _result("research_qdrant", QDRANT),
        _result("write", QDRANT),
    )
    assert [each["step"] for each in verdict["revisions"]] == ["write"]
    assert "Milvus" in verdict["revisions"][0]["problem"]
    assert "licence" in verdict["revisions"][0]["problem"]


ADMITS = f"{QDRANT[:-1]} [find.c1].\n\nMilvus too [find.c2].\n\nNot found in the documents: licence (Qdrant)."


def test_a_gap_that_the_last_result_leaves_out_is_an_open_point() -> None:
    found, written = (
        _result("find", QDRANT, MILVUS, output=ADMITS),
        _result("write", QDRANT, MILVUS),
    )
    verdict = _verdict("Compare Qdrant and Milvus for filtering", found, written)
    assert (verdict["verdict"], verdict["open_points"]) == (
        "PASS",
        ["Not found in the documents: licence (Qdrant)"],
    )


def test_a_gap_that_the_last_result_admits_is_neither_sent_back_nor_said_twice() -> None:
    verdict = _verdict(
        "Compare Qdrant and Milvus for licence", _result("find", QDRANT, MILVUS, output=ADMITS)
    )
    assert verdict == {"verdict": "PASS", "revisions": [], "open_points": []}


def test_the_synthesizer_keeps_markers_says_things_once_and_names_disagreements() -> None:
    one = _result("a", "Qdrant index builds take 10 minutes for the data set.", source="a.md")
    other = _result("b", "Qdrant index builds take 25 minutes for the data set.", source="b.md")
    answer = ask(
        "\n\n".join(
            [
                "<task>Write the one answer to the request below.\n\nRequest:\nHow long do builds take?</task>",
                one,
                other,
            ]
        ),
        envelope_schema(),
        system="You are the synthesizer.",
    )
    assert "## Where the sources disagree" in answer["output"]
    assert markers_in(answer["output"]) == {"a.c1", "b.c1"}
    assert answer["confidence"] < 0.9
