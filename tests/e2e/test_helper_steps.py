"""A step that needs input waits for an input step, which the planner adds."""

from __future__ import annotations

from typing import Any

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.types.events import JobStatus, NeedsResolved
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client.export import Export, extract_record
from handoff_queue.supervisor.client.job_result import JobResult, build_report
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.tracing.timeline import build_timeline
from tests.e2e.fleet import ENVELOPE, SPECIALIST, Fleet
from tests.waiting import MAX_WAIT_S

pytestmark = pytest.mark.slow

NEEDS_INPUT = {
    **ENVELOPE,
    "status": "needs_input",
    "output": None,
    "needs": "The year of the licence change.",
}


def adding_resolution(fleet: Fleet, name: str, specialist: str = SPECIALIST) -> dict[str, str]:
    """Return the planner's resolution that adds an input step for the step `a`."""
    task = fleet.model.task(name, "look-up")
    return {"step": "a", "action": "add_step", "answer": "", "specialist": specialist, "task": task}


def resolutions(fleet: Fleet, job_id: JobId) -> list[NeedsResolved]:
    return [
        recorded.event
        for recorded in fleet.jobs.events(job_id, follow=False)
        if isinstance(recorded.event, NeedsResolved)
    ]


def attempts_at(result: JobResult, step: str) -> list[dict[str, Any]]:
    return [handoff for handoff in result.handoffs if handoff["step_id"] == step]


def test_a_step_in_need_continues_with_the_result_of_an_input_step(fleet: Fleet) -> None:
    fleet.model.envelopes["found-out", "a"] = NEEDS_INPUT
    fleet.model.envelopes["found-out", "look-up"] = {**ENVELOPE, "output": "It was 1999."}
    fleet.model.resolves["found-out"] = [adding_resolution(fleet, "found-out", unknown := "nobody")]
    held = fleet.model.hold("found-out", "look-up")
    job_id = fleet.submit("found-out", a="", b="a")
    assert held.arrived.wait(MAX_WAIT_S)
    fleet.model.envelopes["found-out", "a"] = ENVELOPE
    held.release.set()
    result = fleet.wait_for_success(job_id)

    first, second = attempts_at(result, "a")
    assert (first["depends_on"], second["depends_on"]) == ([], ["a_help"])
    assert [item["step_id"] for item in second["context"]] == ["a_help"]
    assert second["feedback"][0]["text"].startswith("Step a_help was added to answer your question")
    assert [handoff["assigned_to"] for handoff in attempts_at(result, "a_help")] == [SPECIALIST], (
        f"there is no specialist {unknown}"
    )
    assert [step["id"] for step in (result.plan or {})["steps"]] == ["a", "b", "a_help"]
    assert fleet.model.calls["found-out", "b", 1] == 1
    record = extract_record(Export.from_json(fleet.jobs.export(job_id).to_json()))
    bars = {str(bar.handoff_id): bar for bar in build_timeline(record).bars}
    assert build_report(record).results == result.results, "the export has all results"
    assert (bars["a_help.1"].after, bars["a.2"].after, bars["b.1"].after) == (
        ("planner.2",),
        ("a_help.1",),
        ("a.2",),
    )
    assert all(
        bars[handoff_id].is_critical
        for handoff_id in ("a.1", "planner.2", "a_help.1", "a.2", "b.1")
    )


def test_an_input_step_is_paid_by_the_job_and_counts_for_this_and_later_quotes(
    fleet: Fleet,
) -> None:
    fleet.model.envelopes["dearer", "a"] = NEEDS_INPUT
    fleet.model.resolves["dearer"] = [adding_resolution(fleet, "dearer")]
    held = fleet.model.hold("dearer", "look-up")
    fleet.model.plans["dearer"] = {"a": ""}
    fleet.redis.delete(keys.history(SPECIALIST), keys.history("planner"))
    job_id = fleet.jobs.submit(Request("plan dearer", is_quoted=True))
    assert held.arrived.wait(MAX_WAIT_S)
    fleet.model.envelopes["dearer", "a"] = ENVELOPE
    held.release.set()
    result = fleet.wait_for_success(job_id)

    history, _ = fleet.jobs.store.history.read([SPECIALIST, "planner"])
    assert {role: len(samples) for role, samples in history.items()} == {
        SPECIALIST: 3,
        "planner": 2,
    }, "a, its input step, and a again"
    assert result.quote
    assert result.usage["turns"] == sum(
        calls for (name, _, _), calls in fleet.model.calls.items() if name == "dearer"
    )


def test_a_need_without_an_answer_is_given_up_and_named(fleet: Fleet) -> None:
    fleet.model.envelopes["not-found", "a"] = NEEDS_INPUT
    fleet.model.envelopes["not-found", "look-up"] = {
        **ENVELOPE,
        "status": "failed",
        "problem": "The archive is closed.",
    }
    given_up = {
        "step": "a",
        "action": "give_up",
        "answer": "Only the user knows.",
        "specialist": "",
        "task": "",
    }
    fleet.model.resolves["not-found"] = [adding_resolution(fleet, "not-found"), given_up]
    job_id = fleet.submit("not-found", a="", b="")
    result = fleet.wait_for_end(job_id)

    assert result.status is JobStatus.PARTIAL
    assert "needs: The year of the licence change." in str(result.answer)
    assert "The archive is closed." in str(result.answer)
    first, second = resolutions(fleet, job_id)
    assert ([step.id for step in first.added], second.added) == (["a_help"], ())
    assert (second.given_up, second.repeats) == (("a",), ()), (
        "the planner is asked again after the input step has failed"
    )
    assert len(attempts_at(result, "a")) == 2, (
        "the step runs again with the message that it gets no input"
    )
