"""`handoff retry` repeats only the gaps of teams at every depth, and no successful step."""

from __future__ import annotations

from collections import Counter

import pytest

from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.client.job_result import JobResult
from handoff_queue.supervisor.client.request import Request
from tests.e2e.fleet import ENVELOPE, Fleet
from tests.e2e.test_child_jobs import a_team, calls, children

pytestmark = pytest.mark.slow
TIMEOUT_S = 90
CLOSED = {**ENVELOPE, "status": "failed", "problem": "The archive is closed."}


def retry(
    fleet: Fleet, job_id: JobId, *names: str
) -> tuple[JobResult, Counter[tuple[str, str, int]]]:
    """Retry the job, and return its result and the number of model calls of the retry."""
    before = calls(fleet, *names)
    fleet.jobs.retry(job_id)
    return fleet.jobs.result(job_id, wait_s=TIMEOUT_S), calls(fleet, *names) - before


def test_retry_repeats_only_a_gap_two_teams_below(fleet: Fleet) -> None:
    names = [
        "lack",
        a_team(fleet, "lack", "x", a="", y=""),
        a_team(fleet, "lack-x", "y", p="", q="", r=""),
    ]
    fleet.model.plans["lack"] = {"x": "", "z": ""}
    fleet.model.on_failure["lack-x-y"], fleet.model.syntheses["lack-x-y"] = "drop", "reconcile"
    fleet.model.envelopes["lack-x-y", "q"] = CLOSED
    job_id = fleet.jobs.submit(Request("plan lack"))
    first = fleet.wait_for_end(job_id, TIMEOUT_S)
    (child,) = children(fleet, job_id)
    (grandchild,) = children(fleet, child)
    assert (first.status, [gap["step"] for gap in first.gaps]) == (JobStatus.PARTIAL, ["x"])

    second, paid = retry(fleet, job_id, *names)

    assert paid == {("lack-x-y", "q", 1): 1}, "the step still fails"
    assert (second.status, second.answer, second.gaps) == (
        JobStatus.PARTIAL,
        first.answer,
        first.gaps,
    )

    fleet.model.envelopes["lack-x-y", "q"] = ENVELOPE
    last, paid = retry(fleet, job_id, *names)

    reviews = {(name, "assessor", 1): 1 for name in names}
    assert paid == {("lack-x-y", "q", 1): 1, ("lack-x-y", "synthesizer", 1): 1, **reviews}
    assert (last.status, last.gaps) == (JobStatus.OK, ())
    assert [fleet.jobs.info(job).status for job in (child, grandchild)] == [JobStatus.OK] * 2
    assert (children(fleet, job_id), children(fleet, child)) == ([child] * 3, [grandchild] * 3)
    assert last.usage["turns"] == sum(calls(fleet, *names).values())


def test_a_step_that_exceeded_its_share_succeeds_with_a_larger_share(fleet: Fleet) -> None:
    names = [
        "tight",
        a_team(fleet, "tight", "x", a="", b="", c="", d="", e="", f="", g="", h="", i=""),
    ]
    fleet.model.plans["tight"] = {"x": ""} | dict.fromkeys("vwyz", "")
    job_id = fleet.jobs.submit(Request("plan tight", limits=JobLimits(max_turns=20)))
    first = fleet.wait_for_end(job_id, TIMEOUT_S)
    assert (first.status, [gap["step"] for gap in first.gaps]) == (JobStatus.PARTIAL, ["x"])
    (child,) = children(fleet, job_id)
    gaps = {gap["step"] for gap in fleet.jobs.result(child).gaps}

    result, paid = retry(fleet, job_id, *names)

    assert gaps
    assert paid == {
        **{("tight-x", step, 1): 1 for step in gaps},
        **{(name, "assessor", 1): 1 for name in names},
    }
    assert (result.status, children(fleet, job_id)) == (JobStatus.OK, [child, child])
    assert result.usage["turns"] == sum(calls(fleet, *names).values()) <= 20
