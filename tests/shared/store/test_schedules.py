"""The store changes a schedule only if it is as the caller has read it."""

from __future__ import annotations

from typing import Any

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.schedules import StoredSchedule
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.schedule import Schedule, ScheduledJob
from tests.doubles.jobs import submission

JOB = ScheduledJob(event=submission(), payloads=("Compare things.",), documents={"d": "text"})


def a_schedule(name: str = "news", tenant: str = "default", **changes: Any) -> Schedule:
    values = {
        "id": compute_digest(f"{name}/{tenant}")[:12],
        "title": "Compare things.",
        "cron": "@daily",
    }
    times = {"created_at": 1.0, "next_slot": 60}
    return Schedule(name=name, tenant=tenant, **{**values, **times, **changes})


def stored_schedule(store: Store, schedule: Schedule) -> StoredSchedule:
    stored = store.schedules.find(schedule.tenant, schedule.name)
    assert stored is not None
    return stored


def due(store: Store) -> list[str]:
    return [stored.schedule.name for stored in store.schedules.list_due()]


def changed(schedule: Schedule, **changes: Any) -> Schedule:
    return schedule.model_copy(update=changes)


def test_a_schedule_and_its_job_come_back_as_they_were_added(store: Store) -> None:
    schedule = a_schedule()

    assert store.schedules.add(schedule, JOB)
    assert stored_schedule(store, schedule).schedule == schedule
    assert store.schedules.build_job(schedule) == JOB
    assert store.connection.redis.ttl(keys.schedule_job(schedule.id)) == -1


def test_a_name_belongs_to_one_schedule_of_a_tenant(store: Store) -> None:
    first, second = a_schedule(), a_schedule(id="0123456789ab", cron="@weekly")
    store.schedules.add(first, JOB)

    assert not store.schedules.add(second, JOB)
    assert store.schedules.add(a_schedule(tenant="acme"), JOB)
    assert stored_schedule(store, first).schedule == first
    assert store.connection.redis.ttl(keys.schedule_job(second.id)) > 0, "the lost job goes away"


def test_of_two_changes_of_one_state_the_first_counts(store: Store) -> None:
    schedule = a_schedule()
    store.schedules.add(schedule, JOB)
    read = stored_schedule(store, schedule)
    first, second = changed(schedule, next_slot=120), changed(schedule, next_slot=180)

    assert store.schedules.replace(read, first)
    assert not store.schedules.replace(read, second)
    assert not store.schedules.remove(read)
    assert stored_schedule(store, schedule).schedule == first


def test_a_removed_schedule_does_not_come_back(store: Store) -> None:
    schedule = a_schedule()
    store.schedules.add(schedule, JOB)
    read = stored_schedule(store, schedule)

    assert store.schedules.remove(read)
    assert not store.schedules.replace(read, changed(schedule, next_slot=120))
    assert store.schedules.list_all() == []
    assert due(store) == []
    assert not store.connection.redis.exists(keys.schedule_job(schedule.id))


def test_due_schedules_are_those_with_a_slot_or_a_step_left(store: Store) -> None:
    later = int(store.connection.now()) + 3_600
    store.schedules.add(a_schedule("late", next_slot=later), JOB)
    store.schedules.add(a_schedule("now", next_slot=60), JOB)
    store.schedules.add(a_schedule("waiting", next_slot=later, waiting=(60,)), JOB)
    store.schedules.add(a_schedule("paused", is_paused=True, waiting=(60,)), JOB)

    assert due(store) == ["waiting", "now"]


def test_many_waiting_schedules_hide_no_due_schedule(store: Store) -> None:
    for number in range(200):
        store.schedules.add(a_schedule(f"waiting-{number}", waiting=(60,)), JOB)
    store.schedules.add(a_schedule("now"), JOB)

    assert "now" in due(store)


def test_a_paused_schedule_is_due_no_longer(store: Store) -> None:
    schedule = a_schedule()
    store.schedules.add(schedule, JOB)
    before = due(store)
    store.schedules.replace(stored_schedule(store, schedule), changed(schedule, is_paused=True))

    assert (before, due(store)) == (["news"], [])


def test_a_schedule_of_another_version_stops_no_other(store: Store) -> None:
    store.schedules.add(a_schedule(), JOB)
    store.connection.redis.hset(keys.SCHEDULES, "new/default", '{"name": "new", "retries": 3}')
    store.connection.redis.zadd(keys.SCHEDULE_SLOTS, {"new/default": 0})

    assert due(store) == ["news"]
    assert [schedule.name for schedule in store.schedules.list_all()] == ["news"]
