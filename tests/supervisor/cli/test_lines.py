"""The same for a log: a line an event."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.ledger.jobs import HandoffStanding
from shared.wire.events import (
    AnswerMethod,
    CancelRequested,
    ConflictsFound,
    Event,
    JobEnded,
    JobStatus,
    RetryRequested,
    Reviewed,
    StepsAbandoned,
    Synthesised,
    WebhookTried,
)
from shared.wire.handoff import ResultStatus
from shared.wire.verdict import Decision, Verdict
from supervisor.cli.lines import claimed, held_up, lines_of, missed, no_longer_missed
from supervisor.cli.view import Moment, View
from supervisor.waiting import Missing
from tests.supervisor.cli.moments import JOB, PLANNED, REF, SUBMITTED, finished, issued, recorded, reviewed, view_of

BEFORE: tuple[Event, ...] = (
    SUBMITTED,
    issued("planner", "planner", group=None),
    finished("planner"),
    PLANNED,
    issued("left", "researcher"),
)


def last_line(*events: Event) -> str:
    view = view_of(*BEFORE, *events)
    return list(lines_of(Moment(view, tuple(recorded(*BEFORE, *events)))))[-1]


def test_a_job_is_told_from_submission_to_plan() -> None:
    lines = list(lines_of(Moment(view_of(*BEFORE), tuple(recorded(*BEFORE)))))

    assert lines == [
        f"{JOB}: submitted with 3 documents",
        "planner: ok, 3 turns, 1,200 tokens",
        "plan: 2 steps: left (researcher), both (writer)",
        "left (researcher): handed over",
    ]


def test_a_failure_says_why() -> None:
    line = last_line(finished("left", status=ResultStatus.FAILED, error="no such\ndocument"))

    assert line == "left (researcher): failed, 3 turns, 1,200 tokens: no such document"


def test_every_other_event_has_its_line() -> None:
    assert last_line(reviewed(Verdict(verdict=Decision.PASS))) == "review, round 1: PASS"
    assert last_line(Reviewed(round=1, decision=None, problem="no time")) == "review, round 1: none (no time)"
    assert last_line(StepsAbandoned(steps=(), why="too late")).startswith("given up")
    assert last_line(Synthesised(method=AnswerMethod.MERGED)) == "answer: merged"
    assert last_line(CancelRequested()) == "cancel requested"
    assert last_line(JobEnded(status=JobStatus.OK)) == f"{JOB}: ok"
    assert last_line(JobEnded(status=JobStatus.OK), RetryRequested()) == "again, what did not succeed"
    assert last_line(WebhookTried(attempt=2, delivered=False, detail="404")) == "webhook: try 2 failed: 404"


def test_a_claim_is_told_once_and_a_second_claim_as_one() -> None:
    before = view_of(*BEFORE, standings={"left.1": HandoffStanding("issued")})
    first = view_of(*BEFORE, standings={"left.1": HandoffStanding("running", claims=1, worker="host:1")})
    second = view_of(*BEFORE, standings={"left.1": HandoffStanding("running", claims=2, worker="host:2")})

    assert list(claimed(before, first)) == ["left (researcher): works, in host:1"]
    assert list(claimed(first, first)) == []
    assert list(claimed(first, second)) == ["left (researcher): works (claim 2), in host:2"]


@pytest.mark.parametrize(("name", "who"), [("left.1", "left (researcher)"), ("planner.1", "planner")])
def test_a_specialist_or_role_that_waits_for_a_rate_limit_is_told_once(name: str, who: str) -> None:
    def doing(what: str) -> View:
        return view_of(*BEFORE, standings={name: HandoffStanding("running", claims=1, doing=what)})

    assert list(held_up(doing("thinking"), doing("waiting 12 s: rate limit"))) == [f"{who}: waiting 12 s: rate limit"]
    assert list(held_up(view_of(*BEFORE), doing("waiting 12 s: rate limit"))) == [f"{who}: waiting 12 s: rate limit"]
    assert list(held_up(doing("waiting 12 s: rate limit"), doing("waiting 9 s: rate limit"))) == []
    assert list(held_up(doing("waiting 9 s: rate limit"), doing("waiting 2 s: overloaded"))) == [f"{who}: waiting 2 s: overloaded"]
    assert list(held_up(doing("waiting 2 s: overloaded"), doing("thinking"))) == []


def test_a_tool_whose_name_speaks_of_waiting_is_no_wait() -> None:
    works = view_of(*BEFORE, standings={"left.1": HandoffStanding("running", claims=1, doing="waiting_times")})

    assert list(held_up(view_of(*BEFORE), works)) == []


def test_who_is_missing_is_told_once_and_so_is_that_it_is_over() -> None:
    sound = view_of(*BEFORE)
    one = replace(sound, missing=(Missing("a worker of `poet`", "start one with `handoff worker poet`", ("a",)),))
    two = replace(sound, missing=(Missing("a worker of `poet`", "start one with `handoff worker poet`", ("a", "b")),))

    assert list(missed(sound, one)) == ["step a waits for a worker of `poet`: start one with `handoff worker poet`"]
    assert list(missed(one, one)) == []
    assert list(missed(one, two)) == ["steps a, b wait for a worker of `poet`: start one with `handoff worker poet`"]
    assert list(no_longer_missed(one, two)) == []
    assert list(no_longer_missed(two, sound)) == ["no longer waits for a worker of `poet`"]


def test_what_a_handoff_took_is_what_the_budget_counted_and_an_upper_bound_if_a_call_was_cut() -> None:
    books = HandoffStanding("done", turns=4, input_tokens=9_000, output_tokens=500, cut_calls=1)
    view = view_of(*BEFORE, finished("left"), standings={"left.1": books})

    assert list(lines_of(Moment(view, tuple(recorded(*BEFORE, finished("left"))))))[-1] == (
        "left (researcher): ok, 4 turns, ≤ 9,500 tokens"
    )


def test_contradictions_are_told_only_where_there_are_some() -> None:
    none, some = ConflictsFound(), ConflictsFound(conflicts=(("left.c1", "both.c1"),), ledger=REF)
    view = view_of(SUBMITTED, PLANNED)

    assert list(lines_of(Moment(view, tuple(recorded(none, some))))) == ["contradictions: 1 conflict"]
