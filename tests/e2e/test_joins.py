"""A fan-in that needs only a part of its results: it continues as soon as it has enough, and the
rest can follow later.
"""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.events import JobStatus, StepsAbandoned
from handoff_queue.shared.types.ids import JobId
from tests.e2e.fleet import ENVELOPE, Fleet, Held
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
ALL_THE_TIME_S = 60


def given_up(fleet: Fleet, job_id: JobId) -> list[str]:
    events = [one.event for one in fleet.jobs.events(job_id, follow=False)]
    return [
        one.step for event in events if isinstance(event, StepsAbandoned) for one in event.steps
    ]


def let_go_once_begun(quick: list[Held], late: Held) -> None:
    """Let the quick calls end after the late call has arrived. Otherwise the late step might be
    given up before it begins.
    """
    assert late.arrived.wait(30)
    for one in quick:
        one.go.set()


def test_a_step_begins_with_enough_results_and_the_late_call_is_cut(fleet: Fleet) -> None:
    fleet.model.joins["quorum"] = {"d": {"enough": 2, "within_s": 0, "must": []}}
    *quick, late = [fleet.model.hold("quorum", step) for step in ("a", "b", "c")]
    job_id = fleet.submit("quorum", a="", b="", c="", d="a b c")
    let_go_once_begun(quick, late)

    result = fleet.ends(job_id, ALL_THE_TIME_S)  # c is never released

    assert result.status is JobStatus.PARTIAL
    assert given_up(fleet, job_id) == ["c"]
    assert "not waited for: 2 of 3 results were enough for d" in str(result.answer)
    wait_until(
        lambda: fleet.standing(job_id, "c.1").state == "dropped",
        what="the late handoff to be let go",
    )
    late.go.set()


def test_a_step_begins_when_its_time_is_over(fleet: Fleet) -> None:
    fleet.model.joins["in-time"] = {"d": {"enough": 0, "within_s": 1, "must": []}}
    late = fleet.model.hold("in-time", "b")
    job_id = fleet.submit("in-time", a="", b="", d="a b")

    result = fleet.ends(job_id, ALL_THE_TIME_S)

    assert result.status is JobStatus.PARTIAL
    assert given_up(fleet, job_id) == ["b"]
    late.go.set()


def test_finish_runs_the_late_step_and_pays_for_nothing_else(fleet: Fleet) -> None:
    fleet.model.joins["later"] = {"d": {"enough": 1, "within_s": 0, "must": []}}
    quick, late = [fleet.model.hold("later", step) for step in ("a", "b")]
    job_id = fleet.submit("later", a="", b="", d="a b")
    let_go_once_begun([quick], late)
    fleet.ends(job_id, ALL_THE_TIME_S)
    late.go.set()

    fleet.jobs.retry(job_id)
    result = fleet.jobs.result(job_id, wait_s=ALL_THE_TIME_S)

    assert result.status is JobStatus.OK, result.notes
    assert result.gaps == ()
    assert [fleet.model.calls["later", step, 1] for step in ("planner", "a", "b", "d")] == [
        1,
        1,
        2,
        2,
    ]


def test_a_persistent_gap_is_the_only_cost_of_each_finish(
    fleet: Fleet,
) -> None:
    fleet.model.on_failure["closed"] = "drop"
    fleet.model.envelopes["closed", "b"] = {
        **ENVELOPE,
        "status": "failed",
        "problem": "The archive is closed.",
    }
    job_id = fleet.submit("closed", a="", b="", c="a b")
    before = fleet.ends(job_id, ALL_THE_TIME_S)

    for _ in range(2):
        fleet.jobs.retry(job_id)
        result = fleet.jobs.result(job_id, wait_s=ALL_THE_TIME_S)
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
    assert fleet.jobs.result(job_id, wait_s=ALL_THE_TIME_S).status is JobStatus.OK
    assert [
        fleet.model.calls["closed", step, 1] for step in ("planner", "a", "b", "c", "assessor")
    ] == [1, 1, 4, 2, 2]
