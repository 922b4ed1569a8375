"""A job that follows another job starts with the other job's results, and does not pay for them
again.
"""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import HandoffIssued
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client.client import Request
from tests.e2e.fleet import ENVELOPE, Fleet

pytestmark = pytest.mark.slow


def test_a_job_continues_from_the_results_of_another_job(fleet: Fleet) -> None:
    fleet.model.envelopes["first", "a"] = {**ENVELOPE, "output": "The bridge is 300 m long."}
    first = fleet.submit("first", a="", b="a")
    fleet.ends_well(first)
    calls = fleet.model.calls.copy()

    fleet.model.plans["second"] = {"t": "prev_a prev_b"}
    second = fleet.jobs.submit(Request("plan second", after=first))
    result = fleet.ends_well(second)

    (table,) = [one for one in result.handoffs if one["step_id"] == "t"]
    assert sorted(one["step_id"] for one in table["context"]) == ["prev_a", "prev_b"]
    assert {who for name, who, _ in (fleet.model.calls - calls) if name == "first"} == set(), (
        "nothing of the first job is done again"
    )
    issued = [
        one.event.step_id
        for one in fleet.jobs.events(second, follow=False)
        if isinstance(one.event, HandoffIssued)
    ]
    assert issued == ["planner", "t", "assessor"]


def test_the_planner_sees_the_earlier_request_and_its_results(fleet: Fleet) -> None:
    first = fleet.submit("asked-before", a="")
    fleet.ends_well(first)

    fleet.model.plans["asked-now"] = {"t": "prev_a"}
    result = fleet.ends_well(fleet.jobs.submit(Request("plan asked-now", after=first)))

    (planner,) = [one for one in result.handoffs if one["step_id"] == "planner"]
    assert 'Request before:\n"plan asked-before"' in planner["task_description"]
    assert (
        '{"id": "prev_a", "specialist": "generalist", "about": "Do a of asked-before."}'
        in planner["task_description"]
    )
    assert [one["step_id"] for one in planner["context"]] == ["prev_a"]


def test_a_job_that_has_not_ended_is_not_followed_on(fleet: Fleet) -> None:
    held = fleet.model.hold("runs-on", "a")
    job_id = fleet.submit("runs-on", a="")
    assert held.arrived.wait(30)

    with pytest.raises(UserError, match="has not ended yet"):
        fleet.jobs.submit(Request("plan never", after=job_id))
    held.go.set()
    fleet.ends_well(job_id)


@pytest.mark.parametrize(
    ("after", "words"),
    [("j-0123456789ab", "there is no job j-0123456789ab"), ("the last one", "is no job")],
)
def test_an_unknown_job_cannot_be_followed(fleet: Fleet, after: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        fleet.jobs.submit(Request("plan never", after=JobId(after)))
