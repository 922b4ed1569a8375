"""A join that needs only some results continues as soon as it has enough. `retry` can add the rest
later.
"""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.events import JobStatus, StepsAbandoned
from handoff_queue.shared.types.ids import JobId
from tests.e2e.fleet import ENVELOPE, Fleet, HeldCall
from tests.waiting import MAX_WAIT_S, wait_until

pytestmark = pytest.mark.slow
TIMEOUT_S = 60


def abandoned_steps(fleet: Fleet, job_id: JobId) -> list[str]:
    events = [recorded.event for recorded in fleet.jobs.events(job_id, follow=False)]
    return [
        abandoned.step
        for event in events
        if isinstance(event, StepsAbandoned)
        for abandoned in event.steps
    ]


def release_after_late_arrival(quick: list[HeldCall], late: HeldCall) -> None:
    """Release the quick calls after the late call has arrived. Otherwise the supervisor might
    abandon the late step before it begins.
    """
    assert late.arrived.wait(MAX_WAIT_S)
    for call in quick:
        call.release.set()


def test_a_step_begins_with_enough_results_and_the_late_call_is_cut(fleet: Fleet) -> None:
    fleet.model.joins["quorum"] = {"d": {"enough": 2, "within_s": 0, "must": []}}
    *quick, late = [fleet.model.hold("quorum", step) for step in ("a", "b", "c")]
    job_id = fleet.submit("quorum", a="", b="", c="", d="a b c")
    release_after_late_arrival(quick, late)

    result = fleet.wait_for_end(job_id, TIMEOUT_S)  # c is never released

    assert result.status is JobStatus.PARTIAL
    assert abandoned_steps(fleet, job_id) == ["c"]
    assert "not waited for: 2 of 3 results were enough for d" in str(result.answer)
    wait_until(
        lambda: fleet.handoff_info(job_id, "c.1").state == "dropped",
        expected="the end of the late handoff",
    )
    late.release.set()


def test_a_step_begins_when_the_time_of_its_join_is_over(fleet: Fleet) -> None:
    fleet.model.joins["in-time"] = {"d": {"enough": 0, "within_s": 1, "must": []}}
    late = fleet.model.hold("in-time", "b")
    job_id = fleet.submit("in-time", a="", b="", d="a b")

    result = fleet.wait_for_end(job_id, TIMEOUT_S)

    assert result.status is JobStatus.PARTIAL
    assert abandoned_steps(fleet, job_id) == ["b"]
    late.release.set()


def test_retry_runs_only_the_late_step_and_the_steps_after_it(fleet: Fleet) -> None:
    fleet.model.joins["later"] = {"d": {"enough": 1, "within_s": 0, "must": []}}
    quick, late = [fleet.model.hold("later", step) for step in ("a", "b")]
    job_id = fleet.submit("later", a="", b="", d="a b")
    release_after_late_arrival([quick], late)
    fleet.wait_for_end(job_id, TIMEOUT_S)
    late.release.set()

    fleet.jobs.retry(job_id)
    result = fleet.jobs.result(job_id, wait_s=TIMEOUT_S)

    assert result.status is JobStatus.OK, result.notes
    assert result.gaps == ()
    assert [fleet.model.calls["later", step, 1] for step in ("planner", "a", "b", "d")] == [
        1,
        1,
        2,
        2,
    ]


def test_each_retry_pays_only_for_the_step_that_still_fails(
    fleet: Fleet,
) -> None:
    fleet.model.on_failure["closed"] = "drop"
    fleet.model.envelopes["closed", "b"] = {
        **ENVELOPE,
        "status": "failed",
        "problem": "The archive is closed.",
    }
    job_id = fleet.submit("closed", a="", b="", c="a b")
    before = fleet.wait_for_end(job_id, TIMEOUT_S)

    for _ in range(2):
        fleet.jobs.retry(job_id)
        result = fleet.jobs.result(job_id, wait_s=TIMEOUT_S)
        assert (result.status, result.answer, result.gaps) == (
            JobStatus.PARTIAL,
            before.answer,
            before.gaps,
        )
    assert [
        fleet.model.calls["closed", step, 1] for step in ("planner", "a", "b", "c", "assessor")
    ] == [1, 1, 3, 1, 1]

    fleet.model.envelopes["closed", "b"] = ENVELOPE
    fleet.jobs.retry(job_id)
    assert fleet.jobs.result(job_id, wait_s=TIMEOUT_S).status is JobStatus.OK
    assert [
        fleet.model.calls["closed", step, 1] for step in ("planner", "a", "b", "c", "assessor")
    ] == [1, 1, 4, 2, 2]
