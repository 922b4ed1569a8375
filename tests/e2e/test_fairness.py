"""Whose handoffs start first, on real workers that have more to do than slots: by priority,
and between tenants.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from threading import Thread
from typing import Any

import pytest

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.fair_queue import PURGE
from handoff_queue.shared.store.jobs import HandoffStanding
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.job_options import Priority
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.client.client import Request
from handoff_queue.supervisor.workflows import Items, read_workflow
from tests.e2e.fleet import SPECIALIST, Fleet
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

SLOTS = 3
"""Number of slots of the fleet's specialist."""


class Crowds:
    """Jobs of one step a line."""

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
def crowds(fleet: Fleet, tmp_path: Path) -> Crowds:
    return Crowds(fleet, tmp_path)


@contextmanager
def all_slots_taken(fleet: Fleet, name: str) -> Iterator[None]:
    """Take all slots inside the block. New messages then wait."""
    job_id, held = fleet.occupy(name)
    try:
        yield
    finally:
        for one in held:
            one.go.set()
    fleet.ends_well(job_id)


def waits(fleet: Fleet, at_least: int) -> None:
    wait_until(
        lambda: fleet.redis.llen(SPECIALIST) >= at_least,
        timeout_s=90,
        what=f"{at_least} messages in the queue",
    )


@contextmanager
def entering(fleet: Fleet) -> Iterator[dict[str, float]]:
    """Record the time at which each handoff enters the specialist's queue: `job/handoff` -> Unix
    seconds by Redis's clock.
    """
    seen: dict[str, float] = {}
    written = f"HSET {keys.FAIR}{SPECIALIST}:messages "

    def listen(monitor: Any) -> None:
        for one in monitor.listen():
            if one["command"].startswith("ECHO "):
                return
            if one["command"].startswith(written):
                seen[one["command"].removeprefix(written).split(" ")[0]] = one["time"]

    with fleet.redis.monitor() as monitor:
        listening = Thread(target=listen, args=(monitor,))
        listening.start()
        yield seen
        fleet.redis.echo("over")
        listening.join()


def work_of(fleet: Fleet, job_id: JobId) -> dict[HandoffId, HandoffStanding]:
    """Return the handoffs of the job's specialists."""
    handoffs = [
        event.handoff_id for event in fleet.issued(job_id) if event.assigned_to == SPECIALIST
    ]
    return fleet.jobs.store.jobs.handoffs(job_id, handoffs)


def test_10_000_handoffs_of_batch_delay_an_interactive_job_by_no_more_than_one_handoff_a_slot(
    fleet: Fleet, crowds: Crowds
) -> None:
    with all_slots_taken(fleet, "busy-priority"):
        batch = []
        for number in range(1, 11):
            batch.append(crowds.submit(1_000, "ann", Priority.BATCH))
            waits(fleet, 1_000 * number)
    with entering(fleet) as came:
        interactive = fleet.submit("now", a="", b="a", c="b")
        fleet.ends_well(interactive)

    started = [
        one.started_at
        for job_id in batch
        for one in work_of(fleet, job_id).values()
        if one.started_at
    ]
    between = [
        (came[f"{interactive}/{name}"], one.started_at or 0)
        for name, one in work_of(fleet, interactive).items()
    ]
    assert [sum(came_at < at < begun for at in started) <= SLOTS for came_at, begun in between] == [
        True
    ] * 3
    assert SLOTS < len(started) < 9_000, "the crowd went on beside it, and was not through"
    for job_id in batch:
        fleet.jobs.cancel(job_id)
        assert fleet.jobs.result(job_id, wait_s=30).status is JobStatus.CANCELLED
    PURGE.run(
        fleet.redis, [1, SPECIALIST]
    )  # The rest is not wanted. Other jobs need not wait while it is discarded in slices.


def test_equal_tenants_that_arrived_in_turn_wait_equally_long(fleet: Fleet, crowds: Crowds) -> None:
    with all_slots_taken(fleet, "busy-tenants"):
        jobs = []
        for number, tenant in enumerate(("ann", "bob", "cyd"), start=1):
            jobs.append(crowds.submit(30, tenant, Priority.INTERACTIVE))
            waits(fleet, 30 * number)
    for job_id in jobs:
        fleet.ends_well(job_id, within_s=60)
    begun = [
        sorted(one.started_at or 0 for one in work_of(fleet, job_id).values()) for job_id in jobs
    ]
    places = [
        fmean(sum(at < other for all_of_one in begun for at in all_of_one) for other in one)
        for one in begun
    ]

    assert max(places) < 1.2 * min(places), (
        "how many began before each, which no other load on this machine changes"
    )
