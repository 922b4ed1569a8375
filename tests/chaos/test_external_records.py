"""The promise about the runner of the Claude Agent SDK, and the machines that cannot run it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from handoff_queue.chaos import job_generator
from handoff_queue.chaos.external_records import (
    NOT_BY_THE_CLI,
    ExternalRecords,
    external_records,
)
from handoff_queue.chaos.job_generator import (
    EVERYTHING,
    ONLY_CHORDS,
    Draw,
    jobs_of,
    without_missing_extras,
)
from handoff_queue.chaos.job_shapes import Shape
from handoff_queue.chaos.model_server import Call
from handoff_queue.chaos.planned_jobs import CallKey
from handoff_queue.shared.types.job_options import Mode

CALL = Call(CallKey("7-0", "a.1", 1), "w1", 1.0, is_external=True)


def test_a_call_that_the_cli_did_not_ask_for_is_named() -> None:
    records = ExternalRecords([CALL, replace(CALL, is_external=False)])

    assert records.breaches() == {NOT_BY_THE_CLI: ["7-0 a.1, turn 1"]}
    assert ExternalRecords([CALL]).breaches() == {NOT_BY_THE_CLI: []}


def test_only_calls_of_the_steps_that_the_sdk_runs_count() -> None:
    (job,) = jobs_of(7, 1, draw=Draw((Shape.EXTERNAL,), (Mode.TEAM,)))
    keys = [CallKey(job.name, name, 1) for name in ("a.1", "b.1", "planner.1")]
    step, *others = (replace(CALL, key=key) for key in keys)

    assert external_records([job], [step, *others]).calls == [step]


def test_without_the_extra_a_run_leaves_the_shape_out_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_generator, "agent_sdk_fault", lambda: "no package")

    draw, why = without_missing_extras(EVERYTHING)

    assert {*EVERYTHING.shapes} - {*draw.shapes} == {Shape.EXTERNAL}
    assert why == "no jobs of the shape `external`: no package"
    assert without_missing_extras(ONLY_CHORDS) == (ONLY_CHORDS, "")


def test_with_the_extra_a_run_has_all_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_generator, "agent_sdk_fault", str)

    assert without_missing_extras(EVERYTHING) == (EVERYTHING, "")
