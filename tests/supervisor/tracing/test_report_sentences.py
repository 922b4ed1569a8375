"""Notes that a report adds to the answer, in sentences."""

from __future__ import annotations

from typing import Any

from handoff_queue.supervisor.client.report import CHECKED_OFFLINE, report_of
from handoff_queue.supervisor.tracing.rendering import report_sections
from tests.supervisor.tracing.records import Ran


def told(**reported: Any) -> dict[str, Any]:
    return report_sections(report_of(Ran().record()).model_copy(update=reported))


def test_a_verdict_is_told_with_what_was_sent_back_left_open_and_scored() -> None:
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

    assert told(verdicts=(verdict,))["verdicts"] == [
        "Round 1: the reviewer sent work back.",
        "Round 1, sent back: look: no source",
        "Round 1, open: The year is not known.",
        "Round 1, accuracy: 4 of 5: One figure is off.",
    ]


def test_a_verdict_that_code_has_given_says_what_it_rests_on() -> None:
    verdict: dict[str, Any] = {"revisions": [], "open_points": [], "scores": [], "problem": None}
    passed = {**verdict, "round": 1, "verdict": "PASS", "checked": CHECKED_OFFLINE}
    none = {**verdict, "round": 2, "verdict": None, "problem": "no model", "checked": None}

    assert told(verdicts=(passed, none))["verdicts"] == [
        "Round 1: the reviewer passed the results.",
        f"Round 1: {CHECKED_OFFLINE}.",
        "Round 2: there is no verdict (no model).",
    ]


def test_a_gap_says_why_and_what_it_would_cost() -> None:
    gap = {"step": "look", "specialist": "legal", "why": "no terms", "likely_usd": 0.0017}

    assert told(gaps=(gap,))["gaps"] == ["look (legal): no terms. It would cost about $0.0017."]


def test_a_contradiction_names_its_claims_and_what_stands() -> None:
    claims = [{"id": "a.c1", "text": "330 m"}, {"id": "b.c1", "text": "324 m"}]
    conflict = {"id": "x", "claims": claims, "stands": ["a.c1"], "why": "Newer."}

    (line,) = told(conflicts=(conflict,))["conflicts"]

    assert line == (
        "Not all of these can be right: “330 m” (a.c1); “324 m” (b.c1). "
        "Decision: a.c1 stands. Newer."
    )


def test_nothing_is_told_of_what_did_not_happen() -> None:
    assert {name for name, lines in told().items() if lines} == set()
