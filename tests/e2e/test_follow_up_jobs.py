"""A job that follows another job starts with the other job's results, and does not pay for them
again.
"""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import HandoffIssued
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client.request import Request
from tests.e2e.fleet import ENVELOPE, Fleet
from tests.waiting import MAX_WAIT_S

pytestmark = pytest.mark.slow


def test_a_job_continues_from_the_results_of_another_job(fleet: Fleet) -> None:
    fleet.model.envelopes["first", "a"] = {**ENVELOPE, "output": "The bridge is 300 m long."}
    first = fleet.submit("first", a="", b="a")
    fleet.wait_for_success(first)
    calls = fleet.model.calls.copy()

    fleet.model.plans["second"] = {"t": "prev_a prev_b"}
    second = fleet.jobs.submit(Request("plan second", after=first))
    result = fleet.wait_for_success(second)

    (table,) = [handoff for handoff in result.handoffs if handoff["step_id"] == "t"]
    assert sorted(item["step_id"] for item in table["context"]) == ["prev_a", "prev_b"]
    assert {role for name, role, _ in (fleet.model.calls - calls) if name == "first"} == set(), (
        "no step of the first job runs again"
    )
    issued = [
        recorded.event.step_id
        for recorded in fleet.jobs.events(second, follow=False)
        if isinstance(recorded.event, HandoffIssued)
    ]
    assert issued == ["planner", "t", "assessor"]


def test_the_planner_sees_the_earlier_request_and_its_results(fleet: Fleet) -> None:
    first = fleet.submit("asked-before", a="")
    fleet.wait_for_success(first)

    fleet.model.plans["asked-now"] = {"t": "prev_a"}
    result = fleet.wait_for_success(fleet.jobs.submit(Request("plan asked-now", after=first)))

    (planner,) = [handoff for handoff in result.handoffs if handoff["step_id"] == "planner"]
    assert 'Request before:\n"plan asked-before"' in planner["task_description"]
    assert (
        '{"id": "prev_a", "specialist": "generalist", "about": "Do a of asked-before."}'
        in planner["task_description"]
    )
    assert [item["step_id"] for item in planner["context"]] == ["prev_a"]


def test_a_job_cannot_follow_a_job_that_has_not_ended(fleet: Fleet) -> None:
    held = fleet.model.hold("runs-on", "a")
    job_id = fleet.submit("runs-on", a="")
    assert held.arrived.wait(MAX_WAIT_S)

    with pytest.raises(UserError, match="has not ended yet"):
        fleet.jobs.submit(Request("plan never", after=job_id))
    held.release.set()
    fleet.wait_for_success(job_id)


@pytest.mark.parametrize(
    ("after", "text"),
    [("j-0123456789ab", "there is no job j-0123456789ab"), ("the last one", "is not a job id")],
)
def test_a_job_cannot_follow_an_unknown_job(fleet: Fleet, after: str, text: str) -> None:
    with pytest.raises(UserError, match=text):
        fleet.jobs.submit(Request("plan never", after=JobId(after)))
