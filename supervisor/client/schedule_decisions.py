"""Decisions about the slots of a schedule. Pure: each function returns the next state.

A slot passes three steps, and the store records each step only if the schedule is unchanged. A
supervisor takes a due slot, decides to start or to skip it, and stores its job. The id of the
job depends on the slot only, so a step that a dead process began has one effect.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import islice

from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.schedule import (
    MAX_WAITING,
    Missed,
    Overlap,
    Schedule,
    SlotStart,
)
from handoff_queue.shared.types.usage import format_dollars
from handoff_queue.supervisor.client.cron import (
    find_last_slot,
    format_month,
    format_slot,
    iterate_slots,
    next_slot,
)

ON_TIME_S = 60
"""Seconds within which a supervisor must take a slot. A later slot counts as missed."""


@dataclass(frozen=True, slots=True)
class ScheduleDecision:
    """The next state of a schedule, and the jobs to cancel."""

    schedule: Schedule
    to_cancel: tuple[JobId, ...] = ()


def build_slot_key(schedule: Schedule, slot: int) -> str:
    """Return the idempotency key of the job of a slot."""
    return f"schedule:{schedule.name}:{schedule.id}:{slot}"


def take_due_slots(schedule: Schedule, now: float) -> Schedule:
    """Return the schedule after its due slots are taken.

    A paused schedule drops its slots. Missed slots wait or are dropped, as `missed` says. If
    `MAX_WAITING` slots wait, the others stay due.
    """
    if schedule.next_slot > now:
        return schedule
    cron, timezone = schedule.cron, schedule.timezone
    after_now = next_slot(cron, timezone, now)
    if schedule.is_paused:
        return _change_schedule(schedule, next_slot=after_now)
    room = MAX_WAITING - len(schedule.waiting)
    if schedule.missed is Missed.ALL:
        due_slots = iterate_slots(cron, timezone, schedule.next_slot, now)
        slots = list(islice(due_slots, room))
        first_left = next(due_slots, after_now)
        return _change_schedule(schedule, waiting=(*schedule.waiting, *slots), next_slot=first_left)
    if room == 0:
        return schedule
    newest = find_last_slot(cron, timezone, now)
    changes: dict[str, object] = {"next_slot": after_now}
    is_newest_taken = schedule.missed is Missed.LAST or now - newest < ON_TIME_S
    if is_newest_taken:
        changes["waiting"] = (*schedule.waiting, newest)
    if schedule.next_slot < newest or not is_newest_taken:
        note = _describe_missed_slots(schedule, newest, is_newest_taken=is_newest_taken)
        changes["note"] = note
    return _change_schedule(schedule, **changes)


def _describe_missed_slots(schedule: Schedule, newest: int, *, is_newest_taken: bool) -> str:
    first = format_slot(schedule.next_slot, schedule.timezone)
    last = format_slot(newest, schedule.timezone)
    if is_newest_taken:
        return f"slots from {first} on were missed; the slot of {last} started"
    return f"slots from {first} to {last} were missed"


def decide_next(
    schedule: Schedule, ended_jobs: Collection[JobId], spent_microusd: int, now: float
) -> ScheduleDecision:
    """Return the decision about the first waiting slot: start it, skip it, or let it wait.

    Args:
        ended_jobs: jobs of `schedule.running` that have ended or are deleted.
        spent_microusd: money that jobs of this month have spent.
    """
    running = tuple(job_id for job_id in schedule.running if job_id not in ended_jobs)
    slot = schedule.waiting[0]
    if running and schedule.overlap is Overlap.SKIP:
        return ScheduleDecision(skip_slot(schedule, slot, f"{running[0]} has not ended"))
    if running:
        to_cancel = running if schedule.overlap is Overlap.CANCEL else ()
        return ScheduleDecision(schedule, tuple(map(JobId, to_cancel)))
    if is_spent(schedule, spent_microusd):
        return ScheduleDecision(
            skip_slot(schedule, slot, describe_spent_month(schedule, spent_microusd))
        )
    start = SlotStart(
        slot=slot,
        month=format_month(schedule.timezone, now),
        after=schedule.last_job if schedule.follows_last else None,
    )
    return ScheduleDecision(
        _change_schedule(schedule, waiting=schedule.waiting[1:], starting=start, running=running)
    )


def is_spent(schedule: Schedule, spent_microusd: int) -> bool:
    """Return whether the jobs of this month have spent the amount of the schedule."""
    most = schedule.max_microusd_per_month
    return most is not None and spent_microusd >= most


def describe_spent_month(schedule: Schedule, spent_microusd: int) -> str:
    """Return the words for a month whose amount is spent."""
    most = format_dollars(schedule.max_microusd_per_month or 0)
    return f"{format_dollars(spent_microusd)} of {most} of this month are spent"


def skip_slot(schedule: Schedule, slot: int, why: str) -> Schedule:
    """Return the schedule without a slot that waits or starts."""
    return _change_schedule(
        schedule,
        waiting=tuple(other for other in schedule.waiting if other != slot),
        starting=None,
        skipped=schedule.skipped + 1,
        note=f"slot {format_slot(slot, schedule.timezone)} was skipped: {why}",
    )


def record_start(schedule: Schedule, slot: int, job_id: JobId) -> Schedule:
    """Return the schedule after the job of a slot is stored."""
    return _change_schedule(
        schedule,
        starting=None,
        running=(*schedule.running, job_id),
        last_slot=slot,
        last_job=job_id,
        started=schedule.started + 1,
    )


def set_paused_state(schedule: Schedule, now: float, *, is_paused: bool) -> Schedule:
    """Return the schedule with the slots before `now` taken, and then paused or unpaused."""
    return _change_schedule(take_due_slots(schedule, now), is_paused=is_paused)


def _change_schedule(schedule: Schedule, **changes: object) -> Schedule:
    return schedule.model_copy(update=changes)
