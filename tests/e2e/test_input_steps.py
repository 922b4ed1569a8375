"""Another step finds the input that a step needs: real supervisors and workers, a scripted model
behind real HTTP.
"""

from __future__ import annotations

from typing import Any

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.types.events import JobStatus, NeedsResolved
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client.client import Request
from handoff_queue.supervisor.client.export import Export
from handoff_queue.supervisor.client.report import JobResult, report_of
from handoff_queue.supervisor.tracing.timeline import timeline_of
from tests.e2e.fleet import ENVELOPE, SPECIALIST, Fleet

pytestmark = pytest.mark.slow

IN_NEED = {
    **ENVELOPE,
    "status": "needs_input",
    "output": None,
    "needs": "The year of the licence change.",
}


def adds(fleet: Fleet, name: str, specialist: str = SPECIALIST) -> dict[str, str]:
    """Script the planner's answer for the step `a`: a new step."""
    task = fleet.model.task(name, "look-up")
    return {"step": "a", "action": "add_step", "answer": "", "specialist": specialist, "task": task}


def resolutions(fleet: Fleet, job_id: JobId) -> list[NeedsResolved]:
    return [
        one.event
        for one in fleet.jobs.events(job_id, follow=False)
        if isinstance(one.event, NeedsResolved)
    ]


def attempts_at(result: JobResult, step: str) -> list[dict[str, Any]]:
    return [one for one in result.handoffs if one["step_id"] == step]


def test_a_step_in_need_continues_with_the_result_of_an_input_step(fleet: Fleet) -> None:
    fleet.model.envelopes["found-out", "a"] = IN_NEED
    fleet.model.envelopes["found-out", "look-up"] = {**ENVELOPE, "output": "It was 1999."}
    fleet.model.resolves["found-out"] = [adds(fleet, "found-out", to := "nobody")]
    held = fleet.model.hold("found-out", "look-up")
    job_id = fleet.submit("found-out", a="", b="a")
    assert held.arrived.wait(30)
    fleet.model.envelopes["found-out", "a"] = ENVELOPE
    held.go.set()
    result = fleet.ends_well(job_id)

    first, second = attempts_at(result, "a")
    assert (first["depends_on"], second["depends_on"]) == ([], ["a_help"])
    assert [one["step_id"] for one in second["context"]] == ["a_help"]
    assert second["feedback"][0]["text"].startswith("Step a_help was added to answer your question")
    assert [one["assigned_to"] for one in attempts_at(result, "a_help")] == [SPECIALIST], (
        f"{to} is not there"
    )
    assert [step["id"] for step in (result.plan or {})["steps"]] == ["a", "b", "a_help"]
    assert fleet.model.calls["found-out", "b", 1] == 1
    record = Export.from_json(fleet.jobs.export(job_id).to_json()).record()
    bars = {str(bar.handoff_id): bar for bar in timeline_of(record).bars}
    assert report_of(record).results == result.results, "an export has them all"
    assert (bars["a_help.1"].after, bars["a.2"].after, bars["b.1"].after) == (
        ("planner.2",),
        ("a_help.1",),
        ("a.2",),
    )
    assert all(bars[one].is_critical for one in ("a.1", "planner.2", "a_help.1", "a.2", "b.1"))


def test_an_input_step_is_paid_by_the_job_and_counts_for_this_and_later_quotes(
    fleet: Fleet,
) -> None:
    fleet.model.envelopes["dearer", "a"] = IN_NEED
    fleet.model.resolves["dearer"] = [adds(fleet, "dearer")]
    held = fleet.model.hold("dearer", "look-up")
    fleet.model.plans["dearer"] = {"a": ""}
    fleet.redis.delete(keys.history(SPECIALIST), keys.history("planner"))
    job_id = fleet.jobs.submit(Request("plan dearer", is_quoted=True))
    assert held.arrived.wait(30)
    fleet.model.envelopes["dearer", "a"] = ENVELOPE
    held.go.set()
    result = fleet.ends_well(job_id)

    past, _ = fleet.jobs.store.history.read([SPECIALIST, "planner"])
    assert {who: len(found) for who, found in past.items()} == {SPECIALIST: 3, "planner": 2}, (
        "a, who helps it, and a again"
    )
    assert result.quote
    assert result.usage["turns"] == sum(
        calls for (name, _, _), calls in fleet.model.calls.items() if name == "dearer"
    )


def test_a_need_without_an_answer_is_given_up_and_named(fleet: Fleet) -> None:
    fleet.model.envelopes["not-found", "a"] = IN_NEED
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
    fleet.model.resolves["not-found"] = [adds(fleet, "not-found"), given_up]
    job_id = fleet.submit("not-found", a="", b="")
    result = fleet.ends(job_id)

    assert result.status is JobStatus.PARTIAL
    assert "needs: The year of the licence change." in str(result.answer)
    assert "The archive is closed." in str(result.answer)
    first, second = resolutions(fleet, job_id)
    assert ([one.id for one in first.added], second.added) == (["a_help"], ())
    assert (second.given_up, second.repeats) == (("a",), ()), (
        "the planner was asked again, since nobody has found it out"
    )
    assert len(attempts_at(result, "a")) == 2, "it was told, and tried again"
