"""The offline assessor, grader and fact-checker judge by counting, and their reasons say so."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.review import Rubric
from handoff_queue.supervisor.client.job_result import JobResult
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.client.submission import build_plan
from handoff_queue.supervisor.evaluation.answer_grader import (
    AnswerGrader,
    PairwiseGrade,
    Preference,
    parse_duel,
    parse_scores,
    settle,
)
from handoff_queue.supervisor.roles.briefs import build_fact_check_schema, build_fact_check_task
from tests.shared.providers.offline.offline_requests import (
    VERDICT_SCHEMA,
    a_result,
    as_result,
    ask,
    envelope_schema,
)

RUBRIC = Rubric.of_fields({"accuracy": "It is right.", "tone": "It is friendly."})
RIGHT = "Qdrant is written in Rust."


def judge_result(answer: Any) -> JobResult:
    return JobResult(job_id="j-0123456789ab", status=JobStatus.OK, answer=answer)


def judge(request: Request) -> JobResult:
    plan, form = build_plan(request), dict(request.answer_schema or {})
    assert plan is not None
    shown = (
        f"<task>{plan.steps[0].task}</task>\n\n<output_format>{json.dumps(form)}</output_format>"
    )
    envelope = ask(shown, envelope_schema(form))
    assert isinstance(envelope, dict)
    jsonschema.validate(envelope["output"], form)
    return judge_result(envelope["output"])


def scores_of(answer: str, reference: str | None = RIGHT) -> list[int]:
    return [
        criterion_score.score
        for criterion_score in parse_scores(
            judge(
                AnswerGrader().build_scoring_request(
                    "What is Qdrant written in?", RUBRIC, judge_result(answer), reference
                )
            ),
            RUBRIC,
        )
    ]


def test_a_score_follows_from_the_share_of_the_reference_words_in_the_answer() -> None:
    assert (scores_of(RIGHT), scores_of("No idea.")) == ([5, 5], [1, 1])


def test_without_a_reference_answer_the_words_of_the_request_are_counted() -> None:
    assert scores_of("Qdrant is written in COBOL.", None) == [5, 5]


def test_each_reason_says_that_it_was_counted() -> None:
    scores = parse_scores(
        judge(AnswerGrader().build_scoring_request("What?", RUBRIC, judge_result(RIGHT), RIGHT)),
        RUBRIC,
    )
    assert all(grade.why.startswith("Counted, not judged: ") for grade in scores)


def duel_between(first: str, second: str) -> PairwiseGrade | None:
    return parse_duel(
        judge(
            AnswerGrader().build_duel_request(
                "What is Qdrant written in?", RUBRIC, judge_result(first), judge_result(second)
            )
        ),
        RUBRIC,
    )


ANSWERS = st.sampled_from(
    [RIGHT, "No idea.", "Qdrant?", "It is written.", "Rust, and Qdrant is good. Written well."]
)


@given(ANSWERS, ANSWERS)
def test_the_order_of_two_answers_makes_no_difference_to_the_offline_judge(
    first: str, second: str
) -> None:
    there, back = duel_between(first, second), duel_between(second, first)
    assert there is not None
    assert settle(there, back) is there.better
    assert (there.better is Preference.NEITHER) or first != second


def verdict_on(text: str, *quotes: str) -> tuple[str, list[dict[str, str]]]:
    """Return the fact-checker's verdict on a claim, and its wrong statements."""
    form = dict(build_fact_check_schema())
    sources = [{"source": "a.md", "quote": quote} for quote in quotes]
    claim = {"id": "c1", "text": text, "sources": sources}
    result = as_result("write", {"output": f"{text} [c1]", "claims": [claim], "status": "ok"})
    task = f"<task>{build_fact_check_task('How high is it?')}</task>"
    shown = f"{task}\n\n{result}\n\n<output_format>{json.dumps(form)}</output_format>"
    envelope = ask(shown, envelope_schema(form))
    jsonschema.validate(envelope["output"], form)
    assert "not judged" in envelope["output"]["why"]
    return envelope["output"]["verdict"], envelope["output"]["wrong"]


def test_a_claim_whose_figures_are_in_a_quote_passes() -> None:
    quote = "Since 2022 its height is 330 m."

    assert verdict_on("It was 330 m high in 2022.", quote) == ("PASS", [])


def test_a_claim_with_a_figure_that_no_quote_has_is_wrong() -> None:
    text = "It was 324 m high in 2022."
    wrong = [{"statement": text, "why": "no quote has 324"}]

    assert verdict_on(text, "Since 2022 its height is 330 m.") == ("VETO", wrong)


def test_the_fact_checker_cannot_decide_without_a_quote() -> None:
    assert verdict_on("It was 330 m high.") == ("CANNOT_SAY", [])


QDRANT = "Qdrant filters on the payload."
MILVUS = "Milvus filters with boolean expressions."
ADMITTED_GAP = (
    "Qdrant filters on the payload [find.c1].\n\nMilvus too [find.c2].\n\n"
    "Not found in the documents: licence (Qdrant)."
)


def verdict_of(request: str, *results: str) -> dict[str, Any]:
    task = f"<task>Judge the results.\n\nRequest:\n{request}</task>"
    verdict = ask("\n\n".join([task, *results]), VERDICT_SCHEMA)
    assert isinstance(verdict, dict)
    return verdict


def test_a_good_result_passes() -> None:
    assert verdict_of("What does Qdrant filter on?", a_result("find", QDRANT)) == {
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
def test_a_weak_result_is_sent_back_with_its_problem(result: str, problem: str) -> None:
    verdict = verdict_of("What does Qdrant filter on?", result)

    assert verdict["verdict"] == "REVISE"
    assert [each["step"] for each in verdict["revisions"]] == ["find"]
    assert problem in verdict["revisions"][0]["problem"]


def test_a_part_of_the_request_without_a_result_is_sent_back_to_the_last_step() -> None:
    results = a_result("research_qdrant", QDRANT), a_result("write", QDRANT)
    verdict = verdict_of("Compare Qdrant and Milvus for filtering and licence", *results)

    assert [each["step"] for each in verdict["revisions"]] == ["write"]
    assert "Milvus" in verdict["revisions"][0]["problem"]
    assert "licence" in verdict["revisions"][0]["problem"]


def test_a_gap_that_the_last_result_leaves_out_is_an_open_point() -> None:
    result = a_result("find", QDRANT, MILVUS, output=ADMITTED_GAP)
    verdict = verdict_of("Compare Qdrant and Milvus", result, a_result("write", QDRANT, MILVUS))

    assert verdict["verdict"] == "PASS"
    assert verdict["open_points"] == ["Not found in the documents: licence (Qdrant)"]


def test_a_gap_that_the_last_result_admits_is_not_an_open_point() -> None:
    result = a_result("find", QDRANT, MILVUS, output=ADMITTED_GAP)

    assert verdict_of("Compare Qdrant and Milvus for licence", result) == {
        "verdict": "PASS",
        "revisions": [],
        "open_points": [],
    }
