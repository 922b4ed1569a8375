"""The assessor's answer: PASS or REVISE, never a REVISE that nobody could follow."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from shared.agent.reading import NotAcceptable
from shared.wire.ids import StepId
from shared.wire.verdict import Decision, Verdict
from supervisor.roles.assessment import VerdictReading, verdict_of

READING = VerdictReading(("pgvector", "qdrant"))


def answer(verdict: str, *revisions: tuple[str, str], **fields: Any) -> str:
    return json.dumps({"verdict": verdict, "revisions": [{"step": s, "problem": p} for s, p in revisions], "open_points": [], **fields})


def read(text: str, *, last_try: bool = False) -> Verdict:
    return verdict_of(READING.read(text, last_try=last_try).output)


def test_revise_names_steps_and_their_problems() -> None:
    text = answer("REVISE", ("qdrant", "No licence is named."), open_points=["Prices are of 2024."])
    jsonschema.validate(json.loads(text), READING.schema)
    verdict = read(text)
    assert (verdict.verdict, verdict.steps, verdict.open_points) == (
        Decision.REVISE,
        frozenset({StepId("qdrant")}),
        ("Prices are of 2024.",),
    )


def test_a_step_that_is_named_twice_runs_again_once_with_both_problems() -> None:
    verdict = read(answer("revise", ("qdrant", "No licence."), ("Qdrant", "No price.")))
    assert [(one.step, one.problem) for one in verdict.revisions] == [("qdrant", "No licence.\nNo price.")]


@pytest.mark.parametrize("revisions", [[], [("milvus", "Missing.")], [("qdrant", "  ")]])
def test_revise_without_a_step_and_problem_costs_a_turn_and_then_passes(revisions: list[tuple[str, str]]) -> None:
    text = answer("REVISE", *revisions, open_points=["Old."])
    with pytest.raises(NotAcceptable, match="one of pgvector, qdrant"):
        READING.read(text, last_try=False)
    verdict = read(text, last_try=True)
    assert verdict.verdict is Decision.PASS
    assert verdict.open_points == ("Old.", *(problem for _, problem in revisions if problem.strip()))


def test_problems_of_steps_that_were_not_shown_become_open_points() -> None:
    verdict = read(answer("REVISE", ("qdrant", "No price."), ("milvus", "Missing.")))
    assert (verdict.steps, verdict.open_points) == (frozenset({StepId("qdrant")}), ("Missing.",))


def test_remarks_that_come_with_a_pass_become_open_points() -> None:
    verdict = read(answer("PASS", ("qdrant", "Could be shorter.")))
    assert (verdict.verdict, verdict.open_points) == (Decision.PASS, ("qdrant: Could be shorter.",))


@pytest.mark.parametrize("text", ['{"verdict": "PASS"}', '{"verdict": " pass. ", "revisions": null, "open_points": null}'])
def test_lists_may_be_left_out(text: str) -> None:
    assert read(text) == Verdict(verdict=Decision.PASS)


@pytest.mark.parametrize("text", ["", "PASS", '{"verdict": "MAYBE"}', '{"revisions": []}'])
def test_what_is_no_verdict_is_refused_even_on_the_last_try(text: str) -> None:
    with pytest.raises(NotAcceptable):
        READING.read(text, last_try=True)
