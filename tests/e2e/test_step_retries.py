"""A failed step is retried with the reason as feedback. A step that keeps failing becomes a gap,
and the job keeps its other results.
"""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.lifecycle.step_failure import MAX_RETRIES
from tests.e2e.fleet import ENVELOPE, Fleet
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

COST_ONLY = Approvals(above_microusd=1_000_000_000)
"""Approvals that allow questions, with a cost that no test reaches."""


def test_a_step_that_keeps_failing_is_retried_up_to_its_limit_and_becomes_a_gap(
    fleet: Fleet,
) -> None:
    fleet.model.envelopes["tried-again", "b"] = {
        **ENVELOPE,
        "status": "failed",
        "problem": "The archive is closed.",
    }
    job_id = fleet.submit("tried-again", a="", b="")
    result = fleet.wait_for_end(job_id)

    assert fleet.model.calls["tried-again", "b", 1] == 1 + MAX_RETRIES
    assert fleet.model.calls["tried-again", "a", 1] == 1
    assert result.status is JobStatus.PARTIAL
    assert "So it is." in str(result.answer)
    assert "The archive is closed." in str(result.answer)
    feedback = [
        handoff["feedback"][-1]
        for handoff in result.handoffs
        if handoff["step_id"] == "b" and handoff["attempt"] > 1
    ]
    assert [entry["author"] for entry in feedback] == ["supervisor"] * MAX_RETRIES
    assert all("The archive is closed." in entry["text"] for entry in feedback)


def test_a_person_decides_about_a_failed_step_and_has_it_retried(
    fleet: Fleet,
) -> None:
    fleet.model.on_failure["asked-about"] = "ask"
    fleet.model.envelopes["asked-about", "a"] = {
        **ENVELOPE,
        "status": "failed",
        "problem": "The archive is closed.",
    }
    fleet.add_plan("asked-about", {"a": "", "b": "a"})
    job_id = fleet.jobs.submit(Request("plan asked-about", approvals=COST_ONLY))
    wait_until(
        lambda: fleet.jobs.info(job_id).approval == ApprovalOf.FAILURE,
        timeout_s=30,
        expected="the question",
    )
    assert fleet.model.calls["asked-about", "b", 1] == 0, "no later step starts before the decision"

    fleet.model.envelopes["asked-about", "a"] = ENVELOPE
    fleet.jobs.reject(job_id, "It opens at nine.")
    result = fleet.wait_for_success(job_id)

    last = [handoff for handoff in result.handoffs if handoff["step_id"] == "a"][-1]
    assert last["feedback"][-1]["text"] == "It opens at nine."


def test_a_planner_cannot_make_a_job_ask_if_the_user_allows_no_questions(
    fleet: Fleet,
) -> None:
    fleet.model.on_failure["unasked"] = "ask"
    fleet.model.envelopes["unasked", "a"] = {
        **ENVELOPE,
        "status": "failed",
        "problem": "The archive is closed.",
    }
    result = fleet.wait_for_end(fleet.submit("unasked", a="", b="a"))

    assert result.approvals == ()
