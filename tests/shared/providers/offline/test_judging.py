"""Assessor, grader and fact checker: they count, and say so."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.review import Rubric
from handoff_queue.supervisor.client.client import Request
from handoff_queue.supervisor.client.report import JobResult
from handoff_queue.supervisor.client.submission import plan_of
from handoff_queue.supervisor.evaluation.answer_judge import (
    AnswerJudge,
    PairwiseJudgement,
    Preference,
    duel_in,
    scores_in,
    settle,
)
from handoff_queue.supervisor.roles.fact_check import fact_check_schema, fact_check_task
from tests.shared.providers.offline.asking_the_model import (
    VERDICT_SCHEMA,
    a_result,
    as_result,
    ask,
    envelope_schema,
)

RUBRIC = Rubric.of_fields({"accuracy": "It is right.", "tone": "It is friendly."})
RIGHT = "Qdrant is written in Rust."


def said(answer: Any) -> JobResult:
    return JobResult(job_id="j-0123456789ab", status=JobStatus.OK, answer=answer)


def judged(request: Request) -> JobResult:
    plan, form = plan_of(request), dict(request.answer_schema or {})
    assert plan is not None
    shown = (
        f"<task>{plan.steps[0].task}</task>\n\n<output_format>{json.dumps(form)}</output_format>"
    )
    envelope = ask(shown, envelope_schema(form))
    assert isinstance(envelope, dict)
    jsonschema.validate(envelope["output"], form)
    return said(envelope["output"])


def scored(answer: str, reference: str | None = RIGHT) -> list[int]:
    return [
        one.score
        for one in scores_in(
            judged(
                AnswerJudge().scoring("What is Qdrant written in?", RUBRIC, said(answer), reference)
            ),
            RUBRIC,
        )
    ]


def test_an_answer_with_all_words_of_the_right_one_is_scored_highest_and_one_with_none_lowest() -> (
    None
):
    assert (scored(RIGHT), scored("No idea.")) == ([5, 5], [1, 1])


def test_without_a_right_answer_the_words_of_the_request_are_counted() -> None:
    assert scored("Qdrant is written in COBOL.", None) == [5, 5]


def test_each_reason_says_that_it_was_counted() -> None:
    scores = scores_in(judged(AnswerJudge().scoring("What?", RUBRIC, said(RIGHT), RIGHT)), RUBRIC)
    assert all(one.why.startswith("Counted, not judged: ") for one in scores)


def duel(one: str, other: str) -> PairwiseJudgement | None:
    return duel_in(
        judged(AnswerJudge().duel("What is Qdrant written in?", RUBRIC, said(one), said(other))),
        RUBRIC,
    )


ANSWERS = st.sampled_from(
    [RIGHT, "No idea.", "Qdrant?", "It is written.", "Rust, and Qdrant is good. Written well."]
)


@given(ANSWERS, ANSWERS)
def test_which_place_an_answer_has_makes_no_difference(one: str, other: str) -> None:
    there, back = duel(one, other), duel(other, one)
    assert there is not None
    assert settle(there, back) is there.better
    assert (there.better is Preference.NEITHER) or one != other


def verdict_on(text: str, *quotes: str) -> tuple[str, list[dict[str, str]]]:
    """Return the verdict of the fact checker on a claim, and the wrong statements."""
    form = dict(fact_check_schema())
    sources = [{"source": "a.md", "quote": quote} for quote in quotes]
    claim = {"id": "c1", "text": text, "sources": sources}
    result = as_result("write", {"output": f"{text} [c1]", "claims": [claim], "status": "ok"})
    task = f"<task>{fact_check_task('How high is it?')}</task>"
    shown = f"{task}\n\n{result}\n\n<output_format>{json.dumps(form)}</output_format>"
    envelope = ask(shown, envelope_schema(form))
    jsonschema.validate(envelope["output"], form)
    assert "not judged" in envelope["output"]["why"]
    return envelope["output"]["verdict"], envelope["output"]["wrong"]


def test_a_claim_whose_figures_stand_in_a_quote_passes() -> None:
    quote = "Since 2022 its height is 330 m."

    assert verdict_on("It was 330 m high in 2022.", quote) == ("PASS", [])


def test_a_claim_with_a_figure_that_no_quote_has_is_wrong() -> None:
    text = "It was 324 m high in 2022."
    wrong = [{"statement": text, "why": "no quote has 324"}]

    assert verdict_on(text, "Since 2022 its height is 330 m.") == ("VETO", wrong)


def test_the_fact_checker_cannot_say_anything_without_a_quote() -> None:
    assert verdict_on("It was 330 m high.") == ("CANNOT_SAY", [])


QDRANT = "Qdrant filters on the payload."
MILVUS = "Milvus filters with boolean expressions."
ADMITS = (
    "Qdrant filters on the payload [find.c1].\n\nMilvus too [find.c2].\n\n"
    "Not found in the documents: licence (Qdrant)."
)


def assessed(request: str, *results: str) -> dict[str, Any]:
    task = f"<task>Judge the results.\n\nRequest:\n{request}</task>"
    verdict = ask("\n\n".join([task, *results]), VERDICT_SCHEMA)
    assert isinstance(verdict, dict)
    return verdict


def test_a_good_result_passes() -> None:
    assert assessed("What does Qdrant filter on?", a_result("find", QDRANT)) == {
        "verdict": "PASS",
        "revisions": [],
        "open_points": [],
    }


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (a_result("find", QDRANT, output=f"{QDRANT} All love it [find.c1]."), QDRANT),
        (a_result("find", QDRANT, output="Qdrant filters on it [find.c7]."), "find.c7"),
        (a_result("find", output=""), "empty"),
        (a_result("find", output="x", status="failed"), "failed"),
    ],
)
def test_a_result_that_is_not_good_enough_goes_back_with_its_problem(
    result: str, problem: str
) -> None:
    verdict = assessed("What does Qdrant filter on?", result)

    assert verdict["verdict"] == "REVISE"
    assert [each["step"] for each in verdict["revisions"]] == ["find"]
    assert problem in verdict["revisions"][0]["problem"]


def test_a_part_of_the_request_that_no_result_mentions_goes_back_to_the_last_step() -> None:
    results = a_result("research_qdrant", QDRANT), a_result("write", QDRANT)
    verdict = assessed("Compare Qdrant and Milvus for filtering and licence", *results)

    assert [each["step"] for each in verdict["revisions"]] == ["write"]
    assert "Milvus" in verdict["revisions"][0]["problem"]
    assert "licence" in verdict["revisions"][0]["problem"]


def test_a_gap_that_the_last_result_leaves_out_is_an_open_point() -> None:
    found = a_result("find", QDRANT, MILVUS, output=ADMITS)
    verdict = assessed("Compare Qdrant and Milvus", found, a_result("write", QDRANT, MILVUS))

    assert verdict["verdict"] == "PASS"
    assert verdict["open_points"] == ["Not found in the documents: licence (Qdrant)"]


def test_a_gap_that_the_last_result_admits_is_no_open_point() -> None:
    found = a_result("find", QDRANT, MILVUS, output=ADMITS)

    assert assessed("Compare Qdrant and Milvus for licence", found) == {
        "verdict": "PASS",
        "revisions": [],
        "open_points": [],
    }
