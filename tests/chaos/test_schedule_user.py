"""The chaos run expects the job of a slot only after Redis has confirmed the slot."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from handoff_queue.chaos.job_shapes import Shape
from handoff_queue.chaos.planned_jobs import PlannedJob, PlannedStep
from handoff_queue.chaos.schedule_user import PlannedSchedule
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.store import Store, open_store
from handoff_queue.shared.types.errors import StoreError
from handoff_queue.shared.types.schedule import Missed, Schedule, ScheduledJob
from tests.doubles.jobs import submission

SLOTS = [3600, 7200]


@pytest.fixture
def reader(store: Store, redis_url: str) -> Iterator[Store]:
    """Return a store whose Redis user may only read."""
    store.connection.redis.acl_setuser(
        "chaos-reader", enabled=True, passwords=["+secret"], categories=["+@read"], keys=["*"]
    )
    reader = open_store(f"redis://chaos-reader:secret@{redis_url.split('@')[1]}", Settings())
    yield reader
    reader.connection.close()
    store.connection.redis.acl_deluser("chaos-reader")


@pytest.fixture
def planned(store: Store) -> Iterator[PlannedSchedule]:
    """Return a schedule that is in the store."""
    schedule = Schedule(
        id="hourly",
        name="all",
        tenant="default",
        title="Compare things.",
        cron="@hourly",
        created_at=1.0,
        next_slot=10_800,
    )
    prepared = ScheduledJob(event=submission(), payloads=("Compare things.",), documents={})
    assert store.schedules.add(schedule, prepared)
    step = PlannedStep("answer", "analyst")
    job = PlannedJob("7-clock-all", Shape.ALONE, (step,), 7)
    yield PlannedSchedule("all", Missed.ALL, job, "@hourly")
    stored = store.schedules.find("default", "all")
    assert stored is not None
    assert store.schedules.remove(stored)


def test_a_slot_that_redis_confirmed_must_start(store: Store, planned: PlannedSchedule) -> None:
    assert planned.set_back(store, SLOTS[0], SLOTS)

    assert planned.must == {*SLOTS}


def test_a_slot_that_redis_did_not_confirm_may_start(
    reader: Store, planned: PlannedSchedule
) -> None:
    with pytest.raises(StoreError):
        planned.set_back(reader, SLOTS[0], SLOTS)

    assert planned.must == set()
    assert planned.may == {*SLOTS}
