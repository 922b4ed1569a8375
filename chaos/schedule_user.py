"""A user of schedules: adds, pauses, runs and removes them through the HTTP API, and makes their
slots due.

Cron has slots of a minute at least. So most schedules here have one slot an hour. The user turns a
schedule back by some hours, as if no supervisor had run in that time.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from handoff_queue.chaos.api_user import ApiUser, HttpAnswer, ScheduleRecord
from handoff_queue.chaos.job_shapes import Shape
from handoff_queue.chaos.planned_jobs import SPECIALISTS, PlannedJob, PlannedStep
from handoff_queue.shared.store.job_filter import JobFilter
from handoff_queue.shared.store.job_info import JobInfo
from handoff_queue.shared.store.schedules import StoredSchedule
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.events import DEFAULT_TENANT, JobEnded
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.schedule import Missed, Overlap, Schedule
from handoff_queue.supervisor.client.cron import find_last_slot, format_slot, iterate_slots
from handoff_queue.supervisor.client.schedule_decisions import build_slot_key

ZONE = "UTC"
MINUTELY = "* * * * *"
SLOT_AGE_MIN = 20
"""Age in minutes of the newest slot of an hourly schedule when the run begins. No hourly slot
passes in the next 40 minutes.
"""
HOURS = (2, 3, 4)
"""Numbers of hours by which a turn sets back a schedule."""
LATE_S = 600
"""Longest time in seconds until the server has answered a request to remove a schedule."""
PAGE = 200
"""Jobs of one page of the list."""
PAUSED = "paused"
"""A schedule that is paused in its first turn."""
REMOVED = "removed"
"""A schedule that its user removes after its first turn."""
REPEATED = "all"
"""A schedule that a failpoint run turns back for each case."""
TOGGLED = "toggled"
"""A schedule that its user pauses and unpauses all the time."""
TOGGLE_EVERY_S = 1.0
RULES = {
    REPEATED: Missed.ALL,
    "last": Missed.LAST,
    "none": Missed.NONE,
    PAUSED: Missed.LAST,
    TOGGLED: Missed.NONE,
    REMOVED: Missed.ALL,
    "minutely": Missed.ALL,
}
"""The schedules, and what happens to their missed slots."""


@dataclass(slots=True)
class PlannedSchedule:
    """A schedule of the run, and what its user knows about it."""

    name: str
    missed: Missed
    job: PlannedJob
    cron: str
    added_schedule: Schedule | None = None
    """The schedule as it was stored first."""
    must: set[int] = field(default_factory=set)
    """Slots that must start."""
    may: set[int] = field(default_factory=set)
    """Slots that may start."""
    run_now: list[str] = field(default_factory=list)
    """Ids of jobs that the server named as an answer to `run`."""

    def find_newest_slots(self, now: float, count: int) -> list[int]:
        """Return this many slots that are not after `now`, the oldest first."""
        slots: list[int] = []
        for _ in range(count):
            slots.insert(0, find_last_slot(self.cron, ZONE, now))
            now = slots[0] - 1
        return slots

    def set_back(self, store: Store, slot: int, must: Sequence[int]) -> bool:
        """Make this slot the next one. Return False if the schedule has just changed.

        The slots in `must` may start from now on. They must start after Redis has confirmed the
        change.

        Raises:
            StoreUnavailable: Redis cannot be reached.
        """
        stored_schedule = store.schedules.find(DEFAULT_TENANT, self.name)
        if stored_schedule is None:
            return False
        self.may.update(must)
        back = stored_schedule.schedule.model_copy(update={"next_slot": slot})
        if not store.schedules.replace(stored_schedule, back):
            return False
        self.must.update(must)
        return True


@dataclass(slots=True)
class ScheduleUser:
    """Acts on all schedules of a run. Call `advance` repeatedly: it never waits."""

    api: ApiUser
    store: Store
    seed: int
    is_over: bool = False
    """True after the schedules were removed, and their jobs have ended."""
    turns: int = 0
    """Number of times that the schedules were turned back."""
    _schedules: dict[str, PlannedSchedule] = field(default_factory=dict)
    _todo: deque[Callable[[], bool]] = field(default_factory=deque)
    """The next actions. Each returns True when it is complete."""
    _dice: random.Random = field(init=False)
    _toggle_at: float = 0.0
    """Time of the next pause of TOGGLED or its end. Seconds of a monotonic clock."""
    _is_toggled: bool = False
    """True if TOGGLED is paused, as far as the server has answered."""

    def __post_init__(self) -> None:
        self._dice = random.Random(f"{self.seed} schedules")  # noqa: S311 - a seed is the point
        minute = (int(time.time()) // 60 - SLOT_AGE_MIN) % 60
        for name, rule in RULES.items():
            cron = MINUTELY if name == "minutely" else f"{minute} * * * *"
            self._schedules[name] = PlannedSchedule(name, rule, self._plan_job(name), cron)
            self._todo.append(partial(self._add, self._schedules[name]))
        self._todo.append(partial(self._act, PAUSED, "pause"))

    def _plan_job(self, name: str) -> PlannedJob:
        step = PlannedStep("answer", self._dice.choice(SPECIALISTS))
        return PlannedJob(
            f"{self.seed}-clock-{name}",
            Shape.ALONE,
            (step,),
            self.seed,
            mode=Mode.SINGLE,
            is_uncounted=True,
        )

    @property
    def jobs(self) -> list[PlannedJob]:
        """The jobs that the schedules start, once each."""
        return [planned.job for planned in self._schedules.values()]

    def advance(self) -> None:
        """Do the next actions, as far as the server answers.

        Raises:
            StoreUnavailable: Redis cannot be reached.
        """
        if not (self._todo or self.is_over) and time.monotonic() >= self._toggle_at:
            self._todo.append(self._toggle)
        while self._todo and self._todo[0]():
            self._todo.popleft()

    def make_slots_due(self) -> bool:
        """Turn the schedules back. Return False if that is not possible yet: call it again.

        The first turn finds one schedule paused. After it, that schedule is unpaused, one is
        removed, and one runs by hand. After the second turn, another one runs by hand.

        Raises:
            StoreUnavailable: Redis cannot be reached.
        """
        if self._todo:
            return False
        is_first = self.turns == 0
        for planned in self._schedules.values():
            is_there = is_first or planned.name != REMOVED
            if planned.cron != MINUTELY and is_there and not self._set_back(planned):
                return False
        self.turns += 1
        if is_first:
            self._todo.append(partial(self._remove, REMOVED))
            self._todo.append(partial(self._run, "last"))
            self._todo.append(partial(self._act, PAUSED, "unpause"))
        else:
            self._todo.append(partial(self._run, REPEATED))
        return True

    def _set_back(self, planned: PlannedSchedule) -> bool:
        """Make the last slots of a schedule due. Return False if the schedule has just changed."""
        dice = random.Random(f"{self.seed} {planned.name}")  # noqa: S311 - a seed is the point
        count = dice.choice(HOURS) * (self.turns + 1)  # a turn brings back the slots of the last
        slots = planned.find_newest_slots(self.store.connection.now(), count)
        must: list[int] = []
        match planned.missed:
            case Missed.ALL if planned.name == REMOVED:
                planned.may.update(slots)
            case Missed.ALL:
                must = slots
            case Missed.LAST if planned.name != PAUSED or self.turns:
                must = slots[-1:]
        return planned.set_back(self.store, slots[0], must)

    def add_slot(self) -> None:
        """Make one more slot of a schedule due, if its earlier slots have started.

        Raises:
            StoreUnavailable: Redis cannot be reached.
        """
        planned = self._schedules[REPEATED]
        if self._todo or not self._is_settled(REPEATED):
            return
        count = len(planned.must | planned.may) + 1
        slots = planned.find_newest_slots(self.store.connection.now(), count)
        planned.set_back(self.store, slots[0], slots)

    def finish(self) -> None:
        """Remove all schedules after their due slots have started. `advance` does it."""
        for name in self._schedules:
            self._todo.append(partial(self._remove_settled, name))
        self._todo.append(self._have_jobs_ended)

    def collect_records(self) -> list[ScheduleRecord]:
        """Return the schedules that were added, with their jobs in the store."""
        records: list[ScheduleRecord] = []
        for planned in self._schedules.values():
            if planned.added_schedule is None:
                continue
            must: dict[str, str] = {}
            for slot in sorted(planned.must):
                must[self._get_job_id(planned.added_schedule, slot)] = format_slot(slot, ZONE)
            ends_by_job: dict[str, int] = {}
            for info in self._find_jobs(planned.job.request):
                events = self.store.journal.read(info.job_id)
                ends_by_job[info.job_id] = sum(isinstance(each.event, JobEnded) for each in events)
            may = [self._get_job_id(planned.added_schedule, slot) for slot in planned.may]
            records.append(ScheduleRecord(planned.name, must, may, ends_by_job, planned.run_now))
        return records

    def _get_job_id(self, schedule: Schedule, slot: int) -> JobId:
        """Return the id of the job of a slot."""
        return self.store.job_ids.derive(schedule.tenant, build_slot_key(schedule, slot))

    def _read_schedule(self, name: str) -> StoredSchedule | None:
        return self.store.schedules.find(DEFAULT_TENANT, name)

    def _find_jobs(self, text: str) -> list[JobInfo]:
        """Return the jobs whose request contains a text."""
        job_ids: list[JobId] = []
        place = ""
        while True:
            page, place = self.store.jobs.read_page(JobFilter(text=text), PAGE, place)
            job_ids += page
            if not place:
                return self.store.jobs.read(job_ids)

    def _add(self, planned: PlannedSchedule) -> bool:
        """Add a schedule. Return False if the server does not answer, as the next actions do."""
        body = {
            "name": planned.name,
            "cron": planned.cron,
            "overlap": Overlap.QUEUE,
            "missed": planned.missed,
            "job": {"text": planned.job.request, "mode": planned.job.mode},
        }
        answer = self.api.send("POST", "/v1/schedules", body)
        if answer is None:
            return False
        stored_schedule = self._read_schedule(planned.name)
        if stored_schedule is None:
            self.api.failures.append(f"schedule {planned.name} was not added: {answer.detail}")
        else:
            planned.added_schedule = stored_schedule.schedule
        return True

    def _toggle(self) -> bool:
        """Pause the schedule `TOGGLED`, or unpause it the next time."""
        is_answered = self._act(TOGGLED, "unpause" if self._is_toggled else "pause")
        if is_answered:
            self._is_toggled = not self._is_toggled
            self._toggle_at = time.monotonic() + TOGGLE_EVERY_S
        return is_answered

    def _act(self, name: str, verb: str) -> bool:
        """Pause or unpause a schedule, and compare the store with the answer."""
        answer = self.api.send("POST", f"/v1/schedules/{name}/{verb}")
        if answer is None:
            return False
        stored_schedule = self._read_schedule(name)
        if stored_schedule is not None and stored_schedule.schedule.is_paused != (verb == "pause"):
            self.api.failures.append(f"schedule {name}: {verb} had no effect")
        return self._expect(answer, 200)

    def _run(self, name: str) -> bool:
        """Run a schedule now, with a key that makes repetitions harmless."""
        key = f"{self.seed} {name}"
        answer = self.api.send("POST", f"/v1/schedules/{name}/run", key=key)
        if answer is None:
            return False
        if self._expect(answer, 201) and "job_id" in answer.content:
            self._schedules[name].run_now.append(answer.content["job_id"])
        return True

    def _remove(self, name: str) -> bool:
        """Remove a schedule, which an earlier try may have removed."""
        answer = self.api.send("DELETE", f"/v1/schedules/{name}")
        if answer is None:
            return False
        return self._expect(answer, 204, 404)

    def _expect(self, answer: HttpAnswer, *statuses: int) -> bool:
        """Record an answer with another status as a failure. Return True: the action is done."""
        if answer.status not in statuses:
            self.api.failures.append(f"a schedule: {answer.status} {answer.detail}")
        return True

    def _is_settled(self, name: str) -> bool:
        """Return whether no slot of the schedule is due or waits."""
        stored_schedule = self._read_schedule(name)
        if stored_schedule is None:
            return True
        schedule = stored_schedule.schedule
        is_due = not schedule.is_paused and schedule.next_slot <= self.store.connection.now()
        return not (is_due or schedule.waiting or schedule.starting)

    def _remove_settled(self, name: str) -> bool:
        """Remove a schedule when no slot is due or waits. Record the slots that must have started.
        Return False if it was not removed.
        """
        if not self._is_settled(name):
            return False
        planned, stored_schedule = self._schedules[name], self._read_schedule(name)
        if planned.cron == MINUTELY and planned.added_schedule and stored_schedule:
            first, after = planned.added_schedule.next_slot, stored_schedule.schedule.next_slot
            planned.must.update(iterate_slots(MINUTELY, ZONE, first, after - 1))
            # the server may be away while these slots pass
            planned.may.update(iterate_slots(MINUTELY, ZONE, after, after + LATE_S))
        return self._remove(name)

    def _have_jobs_ended(self) -> bool:
        jobs = self._find_jobs(f"chaos {self.seed}-clock-")
        self.is_over = all(info.status.has_ended for info in jobs)
        return self.is_over
