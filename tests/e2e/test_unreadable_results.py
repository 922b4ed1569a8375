"""A stored result that cannot be read is a failed step. Its job ends, and can be cancelled, retried and deleted."""

from __future__ import annotations

import pytest

from shared.ledger import keys
from shared.wire.events import HandoffFinished, JobStatus
from shared.wire.ids import JobId
from shared.wire.results import UNREADABLE
from tests.e2e.fleet import Fleet
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def damage(fleet: Fleet, job_id: JobId, step: str) -> None:
    """Replace the stored result of a step by a text that is not JSON."""

    def ends() -> list[HandoffFinished]:
        events = (recorded.event for recorded in fleet.jobs.events(job_id, follow=False))
        return [
            event
            for event in events
            if isinstance(event, HandoffFinished) and event.handoff_id.startswith(f"{step}.")
        ]

    (finished,) = wait_until(ends, what=f"the result of {step}")
    fleet.redis.hset(keys.blobs(job_id), finished.result.digest, b"=NaN")


def test_a_job_with_an_unreadable_result_ends_and_names_the_step(fleet: Fleet) -> None:
    held = fleet.model.hold("unreadable", "b")
    job_id = fleet.submit("unreadable", a="", b="")
    assert held.arrived.wait(30)
    damage(fleet, job_id, "a")
    held.go.set()

    result = fleet.jobs.result(job_id, wait_s=60)

    assert result.status is not JobStatus.OK
    assert UNREADABLE in str(result)


def test_a_job_with_an_unreadable_result_can_be_cancelled_and_deleted(fleet: Fleet) -> None:
    held = fleet.model.hold("unreadable-cancel", "b")
    job_id = fleet.submit("unreadable-cancel", a="", b="")
    assert held.arrived.wait(30)
    damage(fleet, job_id, "a")

    fleet.jobs.cancel(job_id)

    result = fleet.jobs.result(job_id, wait_s=60)
    held.go.set()
    assert result.status is JobStatus.CANCELLED
    fleet.jobs.delete(job_id)
