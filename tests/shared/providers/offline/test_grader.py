"""Asked to score, the offline model counts words and says so; which place an answer has makes
no difference.
"""

from __future__ import annotations

import json
from typing import Any

import jsonschema
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
from tests.shared.providers.offline.asking_the_model import ask, envelope_schema

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
