"""The decisions about slots: each slot starts at most once, for any pattern of restarts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.types.ids import JobId, derive_job_id
from handoff_queue.shared.types.schedule import MAX_WAITING, Missed, Overlap, Schedule
from handoff_queue.supervisor.client.schedule_decisions import (
    build_slot_key,
    decide_next,
    record_start,
    set_paused_state,
    skip_slot,
    take_due_slots,
)

MINUTE = 60
NOON = 1_798_804_800
"""12:00 UTC on the first day of 2027."""


def a_schedule(**changes: Any) -> Schedule:
    first = {"id": "0123456789ab", "name": "news", "tenant": "default", "title": "What is new?"}
    times = {"cron": "* * * * *", "created_at": NOON - 1, "next_slot": NOON}
    return Schedule(**{**first, **times, **changes})


def id_of_slot(schedule: Schedule, slot: int) -> JobId:
    return derive_job_id(b"a secret", schedule.tenant, build_slot_key(schedule, slot))


@dataclass
class World:
    """A store with one schedule, jobs, and supervisors that read, act and die."""

    schedule: Schedule
    now: float = NOON - 1
    stored: Counter[JobId] = field(default_factory=Counter)
    """Jobs in the store -> their number. A job with a known id is stored once."""
    ended: set[JobId] = field(default_factory=set)
    read: dict[int, Schedule] = field(default_factory=dict)
    """The state that each supervisor has read. The state may be old."""

    def act(self, number: int, *, dies: bool = False) -> None:
        """Let a supervisor take the next step of its state. `dies`: before it notes the step."""
        before = self.read.pop(number, self.schedule)
        after = self._step(before)
        if not dies and before == self.schedule:
            self.schedule = after

    def _step(self, schedule: Schedule) -> Schedule:
        if schedule.starting is not None:
            job_id = id_of_slot(schedule, schedule.starting.slot)
            self.stored[job_id] = 1  # the journal takes the first event of a job once
            return record_start(schedule, schedule.starting.slot, job_id)
        taken = take_due_slots(schedule, self.now)
        if taken != schedule or not schedule.waiting or schedule.is_paused:
            return taken
        return decide_next(schedule, self.ended, 0, self.now).schedule

    def run_to_the_end(self) -> None:
        for _ in range(2_000):
            before = self.schedule
            self.act(0)
            self.ended |= set(self.stored)
            if self.schedule == before and before.next_slot > self.now:
                return
        raise AssertionError("the schedule does not come to rest")


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["act", "die", "read", "end", "wait"]), st.integers(1, 3)),
    max_size=60,
)


def world_after(schedule: Schedule, actions: list[tuple[str, int]]) -> World:
    world = World(schedule)
    for action, number in actions:
        if action == "act":
            world.act(number)
        elif action == "die":
            world.act(number, dies=True)
        elif action == "read":
            world.read[number] = world.schedule
        elif action == "end":
            world.ended |= set(world.stored)
        else:
            world.now += number * 50
        running = set(world.stored) - world.ended
        assert len(running) <= 1, "two jobs of one schedule never run at the same time"
    return world


@given(ACTIONS)
def test_every_slot_starts_exactly_once_for_any_pattern_of_restarts(
    actions: list[tuple[str, int]],
) -> None:
    schedule = a_schedule(overlap=Overlap.QUEUE, missed=Missed.ALL)
    world = world_after(schedule, actions)
    world.run_to_the_end()

    slots = range(NOON, int(world.now) + 1, MINUTE)
    assert set(world.stored) == {id_of_slot(schedule, slot) for slot in slots}
    assert world.schedule.started == len(slots)


@given(ACTIONS, st.sampled_from(Overlap), st.sampled_from([Missed.NONE, Missed.LAST]))
def test_no_slot_starts_twice_and_every_started_job_is_noted(
    actions: list[tuple[str, int]], overlap: Overlap, missed: Missed
) -> None:
    schedule = a_schedule(overlap=overlap, missed=missed)
    world = world_after(schedule, actions)
    world.run_to_the_end()

    slots = range(NOON, int(world.now) + 1, MINUTE)
    assert set(world.stored) <= {id_of_slot(schedule, slot) for slot in slots}
    assert world.schedule.started == len(world.stored)


def test_a_slot_that_no_supervisor_took_within_a_minute_is_missed() -> None:
    late = NOON + 10 * MINUTE + 30
    of_an_hour = a_schedule(cron="0 * * * *")

    none = take_due_slots(of_an_hour.model_copy(update={"missed": Missed.NONE}), late)
    last = take_due_slots(of_an_hour, late)
    on_time = take_due_slots(of_an_hour.model_copy(update={"missed": Missed.NONE}), NOON + 59)

    assert (none.waiting, last.waiting, on_time.waiting) == ((), (NOON,), (NOON,))
    assert none.note == "slots from 2027-01-01 12:00 UTC to 2027-01-01 12:00 UTC were missed"
    assert {decision.next_slot for decision in (none, last, on_time)} == {NOON + 3_600}


def test_of_many_missed_slots_the_policy_takes_none_the_last_or_all() -> None:
    late = NOON + 5 * MINUTE + 5
    waiting = {
        missed: take_due_slots(a_schedule(cron="*/2 * * * *", missed=missed), late).waiting
        for missed in Missed
    }

    assert waiting[Missed.LAST] == (NOON + 4 * MINUTE,)
    assert waiting[Missed.NONE] == ()
    assert waiting[Missed.ALL] == (NOON, NOON + 2 * MINUTE, NOON + 4 * MINUTE)


def test_slots_beyond_the_most_waiting_stay_due() -> None:
    schedule = a_schedule(overlap=Overlap.QUEUE, missed=Missed.ALL)

    taken = take_due_slots(schedule, NOON + 10_000 * MINUTE)

    assert len(taken.waiting) == MAX_WAITING
    assert taken.next_slot == NOON + MAX_WAITING * MINUTE
    assert take_due_slots(taken, NOON + 10_000 * MINUTE) == taken


def test_a_running_job_skips_holds_or_ends_as_the_overlap_says() -> None:
    running = JobId("j-0123456789ab")

    def decided(overlap: Overlap, *ended: JobId) -> Any:
        schedule = a_schedule(waiting=(NOON,), running=(running,), overlap=overlap)
        return decide_next(schedule, ended, 0, NOON)

    skip, queue, cancel = map(decided, Overlap)

    assert skip.schedule.note == (
        "slot 2027-01-01 12:00 UTC was skipped: j-0123456789ab has not ended"
    )
    assert (skip.schedule.waiting, skip.schedule.skipped, skip.to_cancel) == ((), 1, ())
    assert (queue.schedule.waiting, queue.to_cancel) == ((NOON,), ())
    assert (cancel.schedule.waiting, cancel.to_cancel) == ((NOON,), (running,))
    for overlap in Overlap:
        assert decided(overlap, running).schedule.starting.slot == NOON


def test_a_spent_month_skips_the_slot_and_says_so() -> None:
    schedule = a_schedule(waiting=(NOON,), max_microusd_per_month=2_000_000)

    spent = decide_next(schedule, (), 2_000_000, NOON).schedule
    enough = decide_next(schedule, (), 1_999_999, NOON).schedule

    assert spent.starting is None
    assert spent.note.endswith("was skipped: $2 of $2 of this month are spent")
    assert enough.starting is not None
    assert enough.starting.month == "2027-01"


def test_slots_that_pass_during_a_pause_are_dropped() -> None:
    resting = set_paused_state(a_schedule(), NOON - 1, is_paused=True)
    resumed = set_paused_state(resting, NOON + 10 * MINUTE, is_paused=False)

    assert resting.due_at is None
    assert (resumed.waiting, resumed.next_slot) == ((), NOON + 11 * MINUTE)


def test_a_skipped_slot_leaves_the_others_waiting() -> None:
    schedule = a_schedule(waiting=(NOON, NOON + MINUTE))

    assert skip_slot(schedule, NOON, "why").waiting == (NOON + MINUTE,)
