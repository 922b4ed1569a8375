"""The fold of a long journal has a constant cost per step, and leaves earlier states unchanged."""

from __future__ import annotations

import gc
import time

import pytest

from handoff_queue.shared.types.events import (
    Event,
    HandoffFinished,
    HandoffIssued,
    PlanMade,
    RecordedEvent,
    StepOutline,
    StepRetry,
    StepsTriedAgain,
)
from handoff_queue.shared.types.handoff import ResultStatus, StopReason, make_ref
from handoff_queue.shared.types.ids import HandoffId, StepId
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.usage import Usage
from handoff_queue.supervisor.lifecycle.reduce import evolve, fold, fold_on
from tests.doubles.handoffs import JOB
from tests.doubles.jobs import submission

REF = make_ref("a text")
SPEC = compute_digest("spec")
RUNS = 3


def issued_event(step: str, attempt: int) -> HandoffIssued:
    return HandoffIssued(
        handoff_id=HandoffId(f"{step}.{attempt}"),
        step_id=StepId(step),
        attempt=attempt,
        assigned_to="researcher",
        handoff=REF,
        specialist=SPEC,
        group="g1",
    )


def finished_event(step: str, attempt: int, status: ResultStatus) -> HandoffFinished:
    handoff_id = HandoffId(f"{step}.{attempt}")
    reason = StopReason.FINISHED
    return HandoffFinished(
        handoff_id=handoff_id,
        status=status,
        result=REF,
        usage=Usage(),
        turns=1,
        stop_reason=reason,
        confidence=1.0,
    )


def journal_of(steps: int) -> list[RecordedEvent]:
    """Return a journal in which each step fails once, is tried again, and succeeds."""
    names = [f"s{n}" for n in range(steps)]
    events: list[Event] = [
        submission(),
        PlanMade(
            plan=REF, steps=tuple(StepOutline(id=StepId(n), specialist="researcher") for n in names)
        ),
    ]
    events += [issued_event(name, 1) for name in names]
    for name in names:
        again = StepsTriedAgain(steps=(StepRetry(step=StepId(name)),))
        events += [finished_event(name, 1, ResultStatus.FAILED), again, issued_event(name, 2)]
    events += [finished_event(name, 2, ResultStatus.OK) for name in names]
    return [RecordedEvent(version, 1.0, event) for version, event in enumerate(events, start=1)]


def seconds_a_step(events: list[RecordedEvent], steps: int) -> float:
    """Return the lowest time of several runs, per step. Other load on the machine only adds
    time.
    """
    took = []
    gc.disable()
    for _ in range(RUNS):
        began = time.thread_time()
        fold(JOB, None, events)
        took.append(time.thread_time() - began)
    gc.enable()
    return min(took) / steps


@pytest.mark.slow
def test_the_cost_of_a_step_is_the_same_in_a_job_of_1_500_steps_as_of_150() -> None:
    """The factor 2 allows for CPU caches. A copy of all steps per event would give a factor of
    10.
    """
    few, many = journal_of(150), journal_of(1_500)

    assert seconds_a_step(many, 1_500) < 2 * seconds_a_step(few, 150)


def test_a_fold_at_once_equals_a_fold_event_by_event_and_changes_no_earlier_state() -> None:
    events = journal_of(4)
    state = fold(JOB, None, events[:1])
    assert state is not None
    one_by_one, as_they_were = [state], [state.to_json()]
    for recorded in events[1:]:
        one_by_one.append(evolve(one_by_one[-1], recorded))
        as_they_were.append(one_by_one[-1].to_json())

    for place, since in enumerate(one_by_one):
        assert fold_on(since, events[place + 1 :]) == one_by_one[-1]

    assert [each.to_json() for each in one_by_one] == as_they_were
