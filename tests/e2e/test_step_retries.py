"""A failed specialist is asked again with the reason. A step that keeps failing becomes a gap, and
the rest of the job is kept.
"""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals
from handoff_queue.supervisor.client.client import Request
from handoff_queue.supervisor.lifecycle.step_failure import MOST_RETRIES
from tests.e2e.fleet import ENVELOPE, Fleet
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

COST_ONLY = Approvals(above_microusd=1_000_000_000)
"""A user that can be asked, with a limit that no test reaches."""


def test_a_step_that_fails_again_and_again_is_tried_as_often_as_promised_and_then_is_a_gap(
    fleet: Fleet,
) -> None:
    fleet.model.envelopes["tried-again", "b"] = {
        **ENVELOPE,
        "status": "failed",
        "problem": "The archive is closed.",
    }
    job_id = fleet.submit("tried-again", a="", b="")
    result = fleet.ends(job_id)

    assert fleet.model.calls["tried-again", "b", 1] == 1 + MOST_RETRIES
    assert fleet.model.calls["tried-again", "a", 1] == 1
    assert result.status is JobStatus.PARTIAL
    assert "So it is." in str(result.answer)
    assert "The archive is closed." in str(result.answer)
    told = [
        one["feedback"][-1]
        for one in result.handoffs
        if one["step_id"] == "b" and one["attempt"] > 1
    ]
    assert [one["author"] for one in told] == ["supervisor"] * MOST_RETRIES
    assert all("The archive is closed." in one["text"] for one in told)


def test_a_person_is_asked_about_a_step_without_a_further_specialist_and_has_it_retried(
    fleet: Fleet,
) -> None:
    fleet.model.on_failure["asked-about"] = "ask"
    fleet.model.envelopes["asked-about", "a"] = {
        **ENVELOPE,
        "status": "failed",
        "problem": "The archive is closed.",
    }
    fleet.model.plans["asked-about"] = {"a": "", "b": "a"}
    fleet.model.turns["asked-about"] = 1
    job_id = fleet.jobs.submit(Request("plan asked-about", approvals=COST_ONLY))
    wait_until(
        lambda: fleet.jobs.standing(job_id).approval == ApprovalOf.FAILURE,
        timeout_s=30,
        what="the question",
    )
    assert fleet.model.calls["asked-about", "b", 1] == 0, "nobody builds on it before"

    fleet.model.envelopes["asked-about", "a"] = ENVELOPE
    fleet.jobs.reject(job_id, "It opens at nine.")
    result = fleet.ends_well(job_id)

    last = [one for one in result.handoffs if one["step_id"] == "a"][-1]
    assert last["feedback"][-1]["text"] == "It opens at nine."


def test_a_planner_cannot_make_a_job_wait_for_a_person_that_the_user_did_not_offer(
    fleet: Fleet,
) -> None:
    fleet.model.on_failure["unasked"] = "ask"
    fleet.model.envelopes["unasked", "a"] = {
        **ENVELOPE,
        "status": "failed",
        "problem": "The archive is closed.",
    }
    result = fleet.ends(fleet.submit("unasked", a="", b="a"))

    assert result.approvals == ()
