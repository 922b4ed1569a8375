"""The assessor's answer: PASS or REVISE. A REVISE without a usable instruction is refused."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from handoff_queue.shared.agent.answer_format import InvalidAnswer
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.review import MOST_CRITERIA, Decision, Rubric, Score, Verdict
from handoff_queue.supervisor.roles.assessment import MOST_SCORES, VerdictFormat

READING = VerdictFormat(("pgvector", "qdrant"))


def answer(verdict: str, *revisions: tuple[str, str], **fields: Any) -> str:
    return json.dumps(
        {
            "scores": [],
            "verdict": verdict,
            "revisions": [{"step": s, "problem": p} for s, p in revisions],
            "open_points": [],
            **fields,
        }
    )


def read_verdict(text: str, *, last_try: bool = False) -> Verdict:
    return Verdict.of(READING.read(text, last_try=last_try).output)


def test_revise_names_steps_and_their_problems() -> None:
    text = answer("REVISE", ("qdrant", "No licence is named."), open_points=["Prices are of 2024."])
    jsonschema.validate(json.loads(text), READING.schema)
    verdict = read_verdict(text)
    assert (verdict.verdict, verdict.steps, verdict.open_points) == (
        Decision.REVISE,
        frozenset({StepId("qdrant")}),
        ("Prices are of 2024.",),
    )


def test_a_step_that_is_named_twice_runs_again_once_with_both_problems() -> None:
    verdict = read_verdict(answer("revise", ("qdrant", "No licence."), ("Qdrant", "No price.")))
    assert [(revision.step, revision.problem) for revision in verdict.revisions] == [
        ("qdrant", "No licence.\nNo price.")
    ]


@pytest.mark.parametrize("last_try", [False, True])
@pytest.mark.parametrize("revisions", [[], [("milvus", "Missing.")], [("qdrant", "  ")]])
def test_a_revise_without_a_usable_instruction_is_no_verdict(
    revisions: list[tuple[str, str]], last_try: bool
) -> None:
    with pytest.raises(InvalidAnswer, match="one of pgvector, qdrant"):
        READING.read(answer("REVISE", *revisions, open_points=["Old."]), last_try=last_try)


@pytest.mark.parametrize("last_try", [False, True])
@pytest.mark.parametrize("step", ["qdrant", "milvus"])
def test_a_pass_with_revisions_is_no_verdict_and_its_revisions_are_named(
    step: str, last_try: bool
) -> None:
    with pytest.raises(InvalidAnswer, match=r"PASS .*Could be shorter\."):
        READING.read(answer("PASS", (step, "Could be shorter.")), last_try=last_try)


def test_problems_of_steps_that_were_not_shown_become_open_points() -> None:
    verdict = read_verdict(answer("REVISE", ("qdrant", "No price."), ("milvus", "Missing.")))
    assert (verdict.steps, verdict.open_points) == (frozenset({StepId("qdrant")}), ("Missing.",))


@pytest.mark.parametrize(
    "text",
    ['{"verdict": "PASS"}', '{"verdict": " pass. ", "revisions": null, "open_points": null}'],
)
def test_empty_lists_may_be_missing_in_a_verdict(text: str) -> None:
    assert read_verdict(text) == Verdict(verdict=Decision.PASS)


@pytest.mark.parametrize("text", ["", "PASS", '{"verdict": "MAYBE"}', '{"revisions": []}'])
def test_an_invalid_verdict_is_refused_even_on_the_last_try(text: str) -> None:
    with pytest.raises(InvalidAnswer):
        READING.read(text, last_try=True)


# Scores


def score(criterion: str, value: Any, step: str = "*", why: str = "So it is.") -> dict[str, Any]:
    return {"step": step, "criterion": criterion, "why": why, "score": value}


def test_each_criterion_gets_a_score_and_a_reason_for_the_whole_and_for_each_step() -> None:
    text = answer(
        "PASS",
        scores=[score("accuracy", 4, why="One year is missing."), score("clarity", 5, "qdrant")],
    )
    jsonschema.validate(json.loads(text), READING.schema)
    assert read_verdict(text).scores == (
        Score(criterion="accuracy", score=4, why="One year is missing."),
        Score(criterion="clarity", score=5, why="So it is.", step=StepId("qdrant")),
    )


@pytest.mark.parametrize(
    "stray",
    [
        score("taste", 3),
        score("accuracy", 0),
        score("accuracy", 6),
        score("accuracy", "good"),
        score("accuracy", 3, "milvus"),
        "4",
        None,
    ],
)
def test_an_invalid_score_is_left_out_and_the_verdict_stands(stray: Any) -> None:
    verdict = read_verdict(
        answer("PASS", scores=[stray, score("coverage", 3), score("coverage", 5)])
    )
    assert [(item.criterion, item.score) for item in verdict.scores] == [("coverage", 3)]


def test_the_criteria_come_from_the_rubric() -> None:
    reading = VerdictFormat(("qdrant",), Rubric.of_fields({"tone": "It is friendly."}))
    verdict = Verdict.of(
        reading.read(
            answer("PASS", scores=[score("tone", 2), score("accuracy", 5)]), last_try=False
        ).output
    )
    assert [item.criterion for item in verdict.scores] == ["tone"]


def test_with_too_many_steps_only_the_whole_is_scored() -> None:
    rubric = Rubric.of_fields({f"c{n}": "It is good." for n in range(MOST_CRITERIA)})
    few, many = (
        VerdictFormat(tuple(f"s{n}" for n in range(steps)), rubric)
        for steps in (MOST_SCORES // MOST_CRITERIA - 1, 200)
    )
    assert (few.scored, many.scored) == (few.steps, ())
