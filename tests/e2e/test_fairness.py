"""On busy workers, handoffs start by priority, and in turn between tenants."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from threading import Thread
from typing import Any

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.fair_queue import PURGE
from handoff_queue.shared.store.handoff_info import HandoffInfo
from handoff_queue.shared.types.events import DEFAULT_TENANT, JobStatus
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.job_options import Priority
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.workflows import Items, read_workflow
from tests.e2e.fleet import SPECIALIST, Fleet
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

SLOTS = 3
"""Number of slots of the fleet's specialist."""
BATCH_JOBS, BATCH_LINES = 4, 150
"""Number of batch jobs, and of handoffs of each. About 40 handoffs start while the interactive job
runs.
"""


class BatchJobs:
    """Submit jobs with one independent step for each line."""

    def __init__(self, fleet: Fleet, folder: Path) -> None:
        self._fleet = fleet
        self._path = folder / "crowd.yaml"
        step = (
            f"{{id: s, specialist: {SPECIALIST}, for_each: lines, task: '{{item}} Do s of crowd.'}}"
        )
        self._path.write_text(f"description: A crowd.\nreview: false\nsteps: [{step}]\n")

    def submit(self, lines: int, tenant: str, priority: Priority) -> JobId:
        items = Items(lines=tuple(f"Line {n}." for n in range(lines)))
        workflow, limits = read_workflow(str(self._path)), JobLimits(max_seconds=86_400)
        request = Request(
            "Do all.",
            workflow=workflow,
            items=items,
            tenant=tenant,
            priority=priority,
            limits=limits,
        )
        return self._fleet.jobs.submit(request)


@pytest.fixture
def batch_jobs(fleet: Fleet, tmp_path: Path) -> BatchJobs:
    return BatchJobs(fleet, tmp_path)


@contextmanager
def occupied_slots(fleet: Fleet, name: str) -> Iterator[None]:
    """Occupy all slots inside the block, so that new messages wait."""
    job_id, held = fleet.occupy(name)
    try:
        yield
    finally:
        for call in held:
            call.release.set()
    fleet.wait_for_success(job_id)


def wait_for_messages(fleet: Fleet, at_least: int) -> None:
    wait_until(
        lambda: fleet.redis.llen(SPECIALIST) >= at_least,
        timeout_s=90,
        expected=f"{at_least} messages in the queue",
    )


@dataclass
class QueueTimes:
    """Times of the specialist's queue: `JOB/HANDOFF` -> Unix seconds by the clock of Redis."""

    queued_at: dict[str, float] = field(default_factory=dict)
    taken_at: dict[str, float] = field(default_factory=dict)


@contextmanager
def queue_times(fleet: Fleet) -> Iterator[QueueTimes]:
    """Record when each handoff enters the specialist's queue, and when a worker takes it."""
    times = QueueTimes()
    prefixes = {
        f"HSET {keys.FAIR}{SPECIALIST}:messages ": times.queued_at,
        f"HDEL {keys.FAIR}{SPECIALIST}:messages ": times.taken_at,
    }

    def listen(monitor: Any) -> None:
        for command in monitor.listen():
            if command["command"].startswith("ECHO "):
                return
            for prefix, moments in prefixes.items():
                if command["command"].startswith(prefix):
                    name = command["command"].removeprefix(prefix).split(" ")[0]
                    moments[name] = command["time"]

    with fleet.redis.monitor() as monitor:
        listening = Thread(target=listen, args=(monitor,))
        listening.start()
        yield times
        fleet.redis.echo("over")
        listening.join()


def specialist_handoffs(fleet: Fleet, job_id: JobId) -> dict[HandoffId, HandoffInfo]:
    """Return the handoffs of the job's specialists."""
    handoffs = [
        event.handoff_id for event in fleet.issued(job_id) if event.assigned_to == SPECIALIST
    ]
    return fleet.jobs.store.jobs.read_handoffs(job_id, handoffs)


def test_hundreds_of_batch_handoffs_delay_an_interactive_job_by_at_most_one_handoff_a_slot(
    fleet: Fleet, batch_jobs: BatchJobs
) -> None:
    """All jobs have the same tenant, so only the priority orders them."""
    with occupied_slots(fleet, "busy-priority"):
        batch = []
        for number in range(1, BATCH_JOBS + 1):
            batch.append(batch_jobs.submit(BATCH_LINES, DEFAULT_TENANT, Priority.BATCH))
            wait_for_messages(fleet, BATCH_LINES * number)
    with queue_times(fleet) as times:
        interactive = fleet.submit("now", a="", b="a", c="b")
        fleet.wait_for_success(interactive)

    started = [
        info.started_at
        for job_id in batch
        for info in specialist_handoffs(fleet, job_id).values()
        if info.started_at
    ]
    intervals = [
        (times.queued_at[f"{interactive}/{name}"], times.taken_at[f"{interactive}/{name}"])
        for name in specialist_handoffs(fleet, interactive)
    ]
    assert [sum(queued < at < taken for at in started) <= SLOTS for queued, taken in intervals] == [
        True
    ] * 3, "a slow worker process does not change the order in which workers take messages"
    assert SLOTS < len(started) < 0.9 * BATCH_JOBS * BATCH_LINES, (
        "the batch jobs continued next to it, and had not ended"
    )
    for job_id in batch:
        fleet.jobs.cancel(job_id)
        assert fleet.jobs.result(job_id, wait_s=30).status is JobStatus.CANCELLED
    # Delete the remaining messages, so that later tests do not wait for workers to discard them.
    PURGE.run(fleet.redis, [1, SPECIALIST])


def test_equal_tenants_that_arrived_in_turn_wait_equally_long(
    fleet: Fleet, batch_jobs: BatchJobs
) -> None:
    with occupied_slots(fleet, "busy-tenants"):
        jobs = []
        for number, tenant in enumerate(("ann", "bob", "cyd"), start=1):
            jobs.append(batch_jobs.submit(30, tenant, Priority.INTERACTIVE))
            wait_for_messages(fleet, 30 * number)
    for job_id in jobs:
        fleet.wait_for_success(job_id, within_s=60)
    starts = [
        sorted(info.started_at or 0 for info in specialist_handoffs(fleet, job_id).values())
        for job_id in jobs
    ]
    mean_places = [
        fmean(sum(at < other for job_starts in starts for at in job_starts) for other in own_starts)
        for own_starts in starts
    ]

    assert max(mean_places) < 1.2 * min(mean_places), (
        "the place in the order of starts does not depend on the load of the machine"
    )
