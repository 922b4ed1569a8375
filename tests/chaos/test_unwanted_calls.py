"""A cancelled handoff makes no new model call. A call that was sent before is allowed."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from handoff_queue.chaos.expected_handoffs import OK
from handoff_queue.chaos.expected_outcomes import NOT_WAITED_FOR, StoredJob
from handoff_queue.chaos.faults import Fault, Strike
from handoff_queue.chaos.handoff_system import find_question_periods
from handoff_queue.chaos.invariants import RunRecords
from handoff_queue.chaos.job_shapes import Shape
from handoff_queue.chaos.model_server import Call
from handoff_queue.chaos.planned_jobs import CallKey, PlannedJob, PlannedStep
from handoff_queue.chaos.report import find_broken_promises
from handoff_queue.chaos.unwanted_calls import SENT_WITHIN_S
from handoff_queue.shared.types.events import (
    ApprovalAsked,
    Approved,
    Event,
    RecordedEvent,
    Rejected,
)
from handoff_queue.shared.types.job_options import ApprovalOf

CHILD = PlannedJob("1-0-x", Shape.PARALLEL, (PlannedStep("a", "writer"),), seed=1, parent="1-0")
PARENT = PlannedJob("1-0", Shape.TEAMS, (PlannedStep("x", "supervisor", team=CHILD),), seed=1)
GIVEN_UP_AT = 10.0
SOON, LATE = GIVEN_UP_AT + SENT_WITHIN_S / 2, GIVEN_UP_AT + SENT_WITHIN_S * 2
RUNNING = StoredJob("running")
RESULTS = dict.fromkeys(("planner.1", "x.1", "assessor.1"), OK)


def unneeded_calls(
    at: float, parent: StoredJob, child: StoredJob = RUNNING, *strikes: Strike
) -> list[str]:
    call = Call(CallKey("1-0-x", "a.1", 1), "worker1", at, out_at=at + 1)
    return RunRecords(
        [PARENT], [call], strikes, {"1-0": parent, "1-0-x": child}, 3.0
    ).unneeded_calls


@pytest.mark.parametrize(
    ("parent", "child"),
    [
        (StoredJob("cancelled", (GIVEN_UP_AT,)), RUNNING),
        (replace(RUNNING, cancelled_at=GIVEN_UP_AT), RUNNING),
        (replace(RUNNING, given_up_at={"x.1": GIVEN_UP_AT}), RUNNING),
        (RUNNING, StoredJob("cancelled", (GIVEN_UP_AT,), reason=f"j-1 {NOT_WAITED_FOR}")),
        (RUNNING, replace(RUNNING, given_up_at={"a.1": GIVEN_UP_AT})),
        (RUNNING, replace(RUNNING, question_periods=((GIVEN_UP_AT, GIVEN_UP_AT + 60),))),
    ],
    ids=[
        "its parent has ended",
        "its parent is cancelled",
        "its step is given up",
        "its job has ended",
        "its handoff is given up",
        "its job waits for a person",
    ],
)
def test_a_call_of_an_ended_job_is_unwanted(parent: StoredJob, child: StoredJob) -> None:
    assert unneeded_calls(LATE, parent, child)
    assert not unneeded_calls(SOON, parent, child), "the call was already sent"
    assert not unneeded_calls(GIVEN_UP_AT - 1, parent, child)


def test_an_approved_job_continues_at_once() -> None:
    assert not unneeded_calls(
        LATE, RUNNING, replace(RUNNING, question_periods=((GIVEN_UP_AT, LATE - 0.1),))
    )


def test_a_question_is_open_until_the_first_approval_or_rejection() -> None:
    question = ApprovalAsked(what=ApprovalOf.ANSWER, why="its answer is written", wait_s=60)
    events: list[Event] = [
        question,
        Rejected(asked=1),
        Approved(asked=1),
        question,
        Approved(asked=4),
        question,
    ]

    assert find_question_periods(
        [RecordedEvent(at, at * 10.0, event) for at, event in enumerate(events, start=1)]
    ) == (
        (10, 20),
        (40, 50),
        (60, inf),
    )


def test_a_process_that_was_stopped_before_its_call_is_excused() -> None:
    ended = StoredJob("cancelled", (GIVEN_UP_AT,))

    assert not unneeded_calls(
        LATE,
        ended,
        RUNNING,
        Strike(Fault.STOP, "worker1", GIVEN_UP_AT - 1, lasts_s=SENT_WITHIN_S * 3),
    )
    assert unneeded_calls(
        LATE,
        ended,
        RUNNING,
        Strike(Fault.STOP, "worker2", GIVEN_UP_AT - 1, lasts_s=SENT_WITHIN_S * 3),
    )


def test_a_child_without_an_end_is_lost_and_a_child_that_never_began_is_not() -> None:
    parent = StoredJob("ok", (9.0,), results=RESULTS)

    assert RunRecords([PARENT], [], [], {"1-0": parent, "1-0-x": RUNNING}, 3.0).lost == ["1-0-x"]
    assert RunRecords([PARENT], [], [], {"1-0": parent, "1-0-x": StoredJob("")}, 3.0).lost == []
    assert "jobs that ended otherwise than planned" in find_broken_promises(
        RunRecords([PARENT], [], [], {"1-0": parent, "1-0-x": StoredJob("")}, 3.0)
    )
