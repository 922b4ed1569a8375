"""A report adds its notes to the answer as sentences."""

from __future__ import annotations

from typing import Any

from handoff_queue.supervisor.client.job_result import CHECKED_OFFLINE, build_report
from handoff_queue.supervisor.tracing.page import build_report_sections
from tests.supervisor.tracing.job_record_builder import JobRecordBuilder


def sections_of(**reported: Any) -> dict[str, Any]:
    return build_report_sections(
        build_report(JobRecordBuilder().record()).model_copy(update=reported)
    )


def test_a_verdict_is_reported_with_its_revisions_open_points_and_scores() -> None:
    score = {"criterion": "accuracy", "score": 4, "why": "One figure is off.", "step": None}
    verdict = {
        "round": 1,
        "verdict": "REVISE",
        "revisions": [{"step": "look", "problem": "no source"}],
        "open_points": ["The year is not known."],
        "scores": [score],
        "problem": None,
        "checked": None,
    }

    assert sections_of(verdicts=(verdict,))["verdicts"] == [
        "Round 1: the assessor sent work back.",
        "Round 1, sent back: look: no source",
        "Round 1, open: The year is not known.",
        "Round 1, accuracy: 4 of 5: One figure is off.",
    ]


def test_a_verdict_of_code_states_its_basis() -> None:
    verdict: dict[str, Any] = {"revisions": [], "open_points": [], "scores": [], "problem": None}
    passed = {**verdict, "round": 1, "verdict": "PASS", "checked": CHECKED_OFFLINE}
    none = {**verdict, "round": 2, "verdict": None, "problem": "no model", "checked": None}

    assert sections_of(verdicts=(passed, none))["verdicts"] == [
        "Round 1: the assessor passed the results.",
        f"Round 1: {CHECKED_OFFLINE}.",
        "Round 2: there is no verdict (no model).",
    ]


def test_a_gap_states_its_reason_and_its_cost() -> None:
    gap = {"step": "look", "specialist": "legal", "why": "no terms", "likely_usd": 0.0017}

    assert sections_of(gaps=(gap,))["gaps"] == [
        "look (legal): no terms. It would cost about $0.0017."
    ]


def test_a_contradiction_names_its_claims_and_its_outcome() -> None:
    claims = [{"id": "a.c1", "text": "330 m"}, {"id": "b.c1", "text": "324 m"}]
    conflict = {"id": "x", "claims": claims, "stands": ["a.c1"], "why": "Newer."}

    (line,) = sections_of(conflicts=(conflict,))["conflicts"]

    assert line == (
        "Not all of these can be right: “330 m” (a.c1); “324 m” (b.c1). "
        "Decision: a.c1 stands. Newer."
    )


def test_a_report_omits_events_that_did_not_happen() -> None:
    assert {name for name, lines in sections_of().items() if lines} == set()


def test_a_message_names_the_agents_that_took_it() -> None:
    taken = {"message_id": "0" * 16, "at": 1.0, "by": "ann", "step": None, "text": "Be\nshort."}
    takers = [{"handoff_id": "look.1", "turn": 3}]
    untaken = {**taken, "step": "look", "taken": []}

    assert sections_of(messages=({**taken, "taken": takers}, untaken))["messages"] == [
        "message: Be short. (look.1 took it at turn 3)",
        "message to look: Be short. (in the task of later agents)",
    ]
