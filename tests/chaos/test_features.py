"""The promises about batches and the Claude Agent SDK.

No call in a batch is paid twice, and no such call is live. The program of the SDK asks for its
own calls.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from handoff_queue.chaos import job_generator
from handoff_queue.chaos.features import (
    BATCH_CALL_OUTSIDE,
    BATCH_CALL_PAID_TWICE,
    NOT_BY_THE_CLI,
    BatchRecords,
    ExternalRecords,
    collect_batch_records,
    collect_external_records,
)
from handoff_queue.chaos.job_generator import (
    EVERYTHING,
    ONLY_CHORDS,
    Draw,
    generate_jobs,
    without_missing_extras,
)
from handoff_queue.chaos.job_shapes import Shape
from handoff_queue.chaos.model_server import Call
from handoff_queue.chaos.planned_jobs import CallKey
from handoff_queue.shared.types.job_options import Mode

CALL = Call(CallKey("7-0", "a.1", 1), "w1", 1.0, is_batched=True)


def test_each_call_in_a_batch_is_paid_once() -> None:
    second = replace(CALL, key=replace(CALL.key, turn=2))
    assert BatchRecords([CALL, second]).find_breaches() == {
        BATCH_CALL_PAID_TWICE: [],
        BATCH_CALL_OUTSIDE: [],
    }


def test_a_call_that_was_paid_twice_is_named() -> None:
    twice = BatchRecords([CALL, replace(CALL, process="w2")]).find_breaches()
    assert twice[BATCH_CALL_PAID_TWICE] == ["7-0 a.1, turn 1: paid 2 times"]


def test_a_live_call_is_named() -> None:
    live = BatchRecords([replace(CALL, is_batched=False)]).find_breaches()
    assert live[BATCH_CALL_OUTSIDE] == ["7-0 a.1, turn 1"]


def test_only_calls_of_batched_jobs_count() -> None:
    (job,) = generate_jobs(7, 1, draw=Draw((Shape.BATCHED,), (Mode.TEAM,)))
    planner = replace(CALL, key=CallKey(job.name, "planner.1", 1))
    other = replace(CALL, key=CallKey("other", "a.1", 1))
    assert collect_batch_records([job], [planner, other]).calls == [planner]


EXTERNAL_CALL = Call(CallKey("7-0", "a.1", 1), "w1", 1.0, is_external=True)


def test_a_call_that_the_cli_did_not_ask_for_is_named() -> None:
    records = ExternalRecords([EXTERNAL_CALL, replace(EXTERNAL_CALL, is_external=False)])

    assert records.find_breaches() == {NOT_BY_THE_CLI: ["7-0 a.1, turn 1"]}
    assert ExternalRecords([EXTERNAL_CALL]).find_breaches() == {NOT_BY_THE_CLI: []}


def test_only_calls_of_the_steps_that_the_sdk_runs_count() -> None:
    (job,) = generate_jobs(7, 1, draw=Draw((Shape.EXTERNAL,), (Mode.TEAM,)))
    keys = [CallKey(job.name, name, 1) for name in ("a.1", "b.1", "planner.1")]
    step, *others = (replace(EXTERNAL_CALL, key=key) for key in keys)

    assert collect_external_records([job], [step, *others]).calls == [step]


def test_without_the_extra_a_run_leaves_the_shape_out_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_generator, "find_agent_sdk_fault", lambda: "no package")

    draw, why = without_missing_extras(EVERYTHING)

    assert {*EVERYTHING.shapes} - {*draw.shapes} == {Shape.EXTERNAL}
    assert why == "no jobs of the shape `external`: no package"
    assert without_missing_extras(ONLY_CHORDS) == (ONLY_CHORDS, "")


def test_with_the_extra_a_run_has_all_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_generator, "find_agent_sdk_fault", str)

    assert without_missing_extras(EVERYTHING) == (EVERYTHING, "")
