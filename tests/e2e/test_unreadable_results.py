"""A step with an unreadable result counts as failed. Its job ends, and can be cancelled, retried
and deleted.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.types.errors import UnknownJob
from handoff_queue.shared.types.events import HandoffFinished, JobStatus
from handoff_queue.shared.types.handoff import UNREADABLE
from handoff_queue.shared.types.ids import JobId
from tests.e2e.fleet import Fleet
from tests.waiting import MAX_WAIT_S, wait_until

pytestmark = pytest.mark.slow


def corrupt_result(fleet: Fleet, job_id: JobId, digest: str) -> None:
    fleet.redis.hset(keys.blobs(job_id), digest, b"=NaN")


def delete_result(fleet: Fleet, job_id: JobId, digest: str) -> None:
    fleet.redis.hdel(keys.blobs(job_id), digest)


DAMAGES = pytest.mark.parametrize("damage", [corrupt_result, delete_result])
Damage = Callable[[Fleet, JobId, str], None]


def digest_of_result(fleet: Fleet, job_id: JobId, step: str) -> str:
    """Wait for the end of a step, and return the digest of its result."""

    def finished_events() -> list[HandoffFinished]:
        events = (recorded.event for recorded in fleet.jobs.events(job_id, follow=False))
        return [
            event
            for event in events
            if isinstance(event, HandoffFinished) and event.handoff_id.startswith(f"{step}.")
        ]

    return wait_until(finished_events, expected=f"the result of {step}")[0].result.digest


@DAMAGES
def test_a_job_with_an_unreadable_result_ends_names_the_step_and_can_be_retried(
    fleet: Fleet, damage: Damage
) -> None:
    topic = f"unreadable-{damage.__name__}"
    held = fleet.model.hold(topic, "b")
    job_id = fleet.submit(topic, a="", b="")
    assert held.arrived.wait(MAX_WAIT_S)
    damage(fleet, job_id, digest_of_result(fleet, job_id, "a"))
    held.release.set()

    result = fleet.jobs.result(job_id, wait_s=60)

    assert result.status is JobStatus.PARTIAL
    assert [(gap["step"], UNREADABLE in gap["why"]) for gap in result.gaps] == [("a", True)]
    fleet.jobs.retry(job_id)
    assert fleet.jobs.result(job_id, wait_s=60).status is JobStatus.OK
    assert [fleet.model.calls[topic, step, 1] for step in ("a", "b")] == [2, 1]


@DAMAGES
def test_a_job_with_an_unreadable_result_can_be_cancelled_and_deleted(
    fleet: Fleet, damage: Damage
) -> None:
    topic = f"cancelled-{damage.__name__}"
    held = fleet.model.hold(topic, "b")
    job_id = fleet.submit(topic, a="", b="")
    assert held.arrived.wait(MAX_WAIT_S)
    damage(fleet, job_id, digest_of_result(fleet, job_id, "a"))

    fleet.jobs.cancel(job_id)

    result = fleet.jobs.result(job_id, wait_s=60)
    held.release.set()
    assert result.status is JobStatus.CANCELLED
    fleet.jobs.delete(job_id)
    with pytest.raises(UnknownJob):
        fleet.jobs.info(job_id)
