"""The promise about batches: no call in a batch is paid twice, and no such call is live."""

from __future__ import annotations

from dataclasses import replace

from handoff_queue.chaos.batch_records import (
    NOT_IN_BATCHES,
    PAID_TWICE,
    BatchRecords,
    batch_records,
)
from handoff_queue.chaos.job_generator import Draw, jobs_of
from handoff_queue.chaos.job_shapes import Shape
from handoff_queue.chaos.model_server import Call
from handoff_queue.chaos.planned_jobs import CallKey
from handoff_queue.shared.types.job_options import Mode

CALL = Call(CallKey("7-0", "a.1", 1), "w1", 1.0, is_batched=True)


def test_each_call_in_a_batch_is_paid_once() -> None:
    second = replace(CALL, key=replace(CALL.key, turn=2))
    assert BatchRecords([CALL, second]).breaches() == {PAID_TWICE: [], NOT_IN_BATCHES: []}


def test_a_call_that_was_paid_twice_is_named() -> None:
    twice = BatchRecords([CALL, replace(CALL, process="w2")]).breaches()
    assert twice[PAID_TWICE] == ["7-0 a.1, turn 1: paid 2 times"]


def test_a_live_call_is_named() -> None:
    live = BatchRecords([replace(CALL, is_batched=False)]).breaches()
    assert live[NOT_IN_BATCHES] == ["7-0 a.1, turn 1"]


def test_only_calls_of_steps_and_closing_roles_of_batched_jobs_count() -> None:
    (job,) = jobs_of(7, 1, draw=Draw((Shape.BATCHED,), (Mode.TEAM,)))
    step = replace(CALL, key=CallKey(job.name, "a.1", 1))
    planner = replace(CALL, key=CallKey(job.name, "planner.1", 1), is_batched=False)
    assessor = replace(CALL, key=CallKey(job.name, "assessor.1", 1))
    other = replace(CALL, key=CallKey("other", "a.1", 1), is_batched=False)
    assert batch_records([job], [step, planner, assessor, other]).calls == [step, assessor]
