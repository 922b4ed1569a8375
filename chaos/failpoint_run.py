"""A run of all failpoints on one fleet with constant jobs: arm a point, and make a process
reach it.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from handoff_queue.chaos.cli_user import CommandRun, make_unreadable
from handoff_queue.chaos.failpoint_cases import CLIENT, Case, FailpointAction, Trigger
from handoff_queue.chaos.faults import EVERYBODY, Fault, Stops, Strike, delete_queue
from handoff_queue.chaos.fleet import CONSOLE, REDIS, SUPERVISOR, WORKER, arm, get_points_folder
from handoff_queue.chaos.handoff_system import HandoffProject
from handoff_queue.chaos.job_generator import Draw, generate_jobs
from handoff_queue.chaos.job_shapes import REJECTED, Shape
from handoff_queue.chaos.notes import inserts_line
from handoff_queue.chaos.planned_jobs import TROUBLE_SHARE, PlannedJob
from handoff_queue.chaos.system import System
from handoff_queue.chaos.test_bed import CHECK_EVERY_S, Progress, TestBed
from handoff_queue.shared.observability.failpoints import BEFORE
from handoff_queue.shared.store.redis.connection import translate_errors
from handoff_queue.shared.types.errors import StoreError
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.names import SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE

ARMED_AT_ONCE = 5
"""Most armed points, without the points of commands."""
JOBS_AT_ONCE = 6
CROWD = 16
"""Open jobs that use up the role slots of the supervisors: three supervisors have two slots
each.
"""
OFTEN = 0.3
"""Share of a job's calls that the provider refuses, to test many refusals."""
GIVEN_UP_AFTER_S = 120.0
"""Seconds until an armed point is given up: enough on a busy machine."""
STOPPED_LEASES = 1.6
"""Duration of a stop in leases: longer than a lease and the sweep after it, shorter than the
watchdog's patience.
"""
NUDGE_EVERY_S = 1.5
"""Seconds between two processes of a kind that are told to end."""
LAST_CALLS = 40
"""Number of the newest calls among which a call in flight is looked for."""
KILLS = {SUPERVISOR: Fault.KILL_SUPERVISOR, CONSOLE: Fault.KILL_CONSOLE}
"""Fault of a kill by kind of process. The process of a command counts as a worker."""
ASKING = Draw((Shape.APPROVED, *REJECTED), (Mode.TEAM,))
"""Jobs with a question to their user."""
FIRST_ASKING = 1_000_000
"""Number of the first job from ASKING, so that its name is not the name of another job."""
NOTING = Draw((Shape.REMEMBERED,), tuple(Mode))
"""Jobs that write a note."""
FIRST_NOTING = 2_000_000
"""The same number for NOTING."""
BATCHING = Draw((Shape.BATCHED,), tuple(Mode))
"""Jobs whose calls go into batches."""
FIRST_BATCHING = 3_000_000
"""The same number for BATCHING."""
FAILS_AT = f"script.set_next_evaluation.{BEFORE}"
"""Point at which a supervisor that continues a job raises an internal error."""


@dataclass(slots=True)
class Armed:
    """A case whose point is armed."""

    case: Case
    since: float
    """Time of the arming, in seconds of a monotonic clock."""
    command_run: CommandRun | None = None
    """Command of the user during the case."""
    is_tried: bool = False
    """True after a process reached the point, or after it was given up."""


@dataclass(slots=True)
class FailpointRun:
    """A run of cases. After `run`, `strikes` holds the actions, and `not_reached` the
    unreached points.
    """

    bed: TestBed[System]
    seed: int
    tell: Progress
    draw: Draw
    handoff_bed: TestBed[HandoffProject] | None = None
    """The test bed, if it has this system: only here can a case type commands and forge
    messages.
    """
    strikes: list[Strike] = field(default_factory=list)
    not_reached: list[Case] = field(default_factory=list)
    _waiting: list[Case] = field(default_factory=list)
    _armed: list[Armed] = field(default_factory=list)
    _jobs: Iterator[PlannedJob] = field(init=False)
    _asking_jobs: Iterator[PlannedJob] = field(init=False)
    _noting_jobs: Iterator[PlannedJob] = field(init=False)
    _batching_jobs: Iterator[PlannedJob] = field(init=False)
    _dice: random.Random = field(init=False)
    _nudged_at: dict[str, float] = field(default_factory=dict)
    """Time at which a process of each kind was last told to end. Seconds of a monotonic clock."""
    _stops: Stops = field(init=False)
    _next_job: PlannedJob | None = None

    def run(self, cases: Sequence[Case]) -> None:
        """Try all cases, several at once."""
        get_points_folder(self.bed.fleet.folder, CLIENT).mkdir(parents=True, exist_ok=True)
        self._jobs = _iterate_jobs(self.seed, self.draw)
        self._asking_jobs = _iterate_jobs(self.seed, ASKING, FIRST_ASKING)
        self._noting_jobs = _iterate_jobs(self.seed, NOTING, FIRST_NOTING)
        self._batching_jobs = _iterate_jobs(self.seed, BATCHING, FIRST_BATCHING)
        self._stops = Stops(self.strikes)
        self._dice = random.Random(f"{self.seed} trial")  # noqa: S311 - a seed is the point
        self._waiting, told_at = list(cases), time.monotonic()
        while self._waiting or self._armed or self._stops.targets:
            if len(self.bed.open) < (CROWD if self._needs(Trigger.CROWD) else JOBS_AT_ONCE):
                self._submit()
            while case := self._choose_next_case():
                self._waiting.remove(case)
                self._arm(case)
            self._provoke_armed_points()
            self._stops.wake(only_due=True)
            self._armed = [armed for armed in self._armed if not self._is_over(armed)]
            self.bed.observe()
            if time.monotonic() - told_at > 10:
                told_at = time.monotonic()
                tried_count = len(cases) - len(self._waiting) - len(self._armed)
                self.tell(f"{tried_count} of {len(cases)} failpoints")
            time.sleep(CHECK_EVERY_S)

    def _choose_next_case(self) -> Case | None:
        """Return a case that can be armed now, or None. Enough processes must be left to reach
        its point, and to recover before the next action.
        """
        armed_cases = [each.case for each in self._armed]
        armed_of_kind = Counter(case.kind for case in armed_cases)
        in_fleet = armed_of_kind[WORKER] + armed_of_kind[SUPERVISOR]
        if in_fleet >= ARMED_AT_ONCE or not self.bed.fleet.is_ready(REDIS):
            return None
        spare = {CLIENT: 1}
        for kind in (WORKER, SUPERVISOR):
            spare[kind] = len(self.bed.fleet.find_ready(kind)) - 1 - armed_of_kind[kind]
        spare[CONSOLE] = len(self.bed.fleet.find_ready(CONSOLE)) - armed_of_kind[CONSOLE]
        for case in self._waiting:
            is_blocked = any(_exclude_each_other(case, other) for other in armed_cases)
            if case.trigger is Trigger.NOTES and not self._is_inserting():
                is_blocked = True
            if not is_blocked and spare[case.kind] > 0:
                return case
        return None

    @property
    def _required_handoff_bed(self) -> TestBed[HandoffProject]:
        assert self.handoff_bed is not None, (
            "only this system has commands, and messages of other versions"
        )
        return self.handoff_bed

    def _submit(self) -> None:
        """Submit the next job, or the last one again if Redis did not confirm it."""
        if self._needs(Trigger.REFUSED):
            share = OFTEN
        else:
            share = TROUBLE_SHARE
        if self._next_job is None:
            self._next_job = replace(next(self._choose_jobs()), trouble_share=share)
        if self.bed.submit(self._next_job):
            self._next_job = None

    def _choose_jobs(self) -> Iterator[PlannedJob]:
        """Return the jobs that reach the armed points."""
        if self._needs(Trigger.API_ANSWER):
            return self._asking_jobs
        if self._needs(Trigger.BATCHES):
            return self._batching_jobs
        is_next = bool(self._waiting) and self._waiting[0].trigger is Trigger.NOTES
        if is_next and not any(map(self._writes_note, self.bed.open)):
            return self._noting_jobs
        return self._jobs

    def _writes_note(self, name: str) -> bool:
        return self.bed.jobs[name].shape is Shape.REMEMBERED

    def _is_inserting(self) -> bool:
        """Return whether an agent is about to insert a line into its note. Only such a call of the
        tool would have a second effect.
        """
        for call in self.bed.model.calls[-LAST_CALLS:]:
            job = self.bed.jobs.get(call.key.job)
            if job is not None and call.out_at is None and inserts_line(job, call.key):
                return True
        return False

    def _arm(self, case: Case) -> None:
        if case.action is FailpointAction.REDIS:
            order = f"kill {self.bed.fleet.list_processes()[REDIS]}"
        else:
            order = case.action.value
        folder = self.bed.fleet.get_points(case.kind)
        for mark in folder.glob(f"{case.point}@*"):  # left by an earlier case at this point
            mark.unlink()
        arm(folder, case.point, order)
        command_run = None
        if case.trigger.is_command:
            command_run = CommandRun(self._required_handoff_bed, case, self._jobs)
        self._armed.append(Armed(case, time.monotonic(), command_run))

    def _is_over(self, armed: Armed) -> bool:
        """Check an armed case. Return whether it and its command are complete."""
        if not armed.is_tried:
            self._check(armed)
        if armed.command_run is None:
            return armed.is_tried
        return armed.command_run.advance(is_tried=armed.is_tried)

    def _check(self, armed: Armed) -> None:
        """Record the strike if a process has reached the point. Give up the point after
        `GIVEN_UP_AFTER_S`.
        """
        folder, case = self.bed.fleet.get_points(armed.case.kind), armed.case
        mark = next(folder.glob(f"{case.point}@*"), None)
        if mark is not None:
            armed.is_tried = True
            pid = int(mark.name.partition("@")[2])
            strike = self._build_strike(case, pid, mark.stat().st_ctime)
            if case.action is FailpointAction.STOP:
                self._stops.add(pid, strike)
            else:
                self.strikes.append(strike)
            mark.unlink()
        elif time.monotonic() - armed.since > GIVEN_UP_AFTER_S:
            armed.is_tried = True
            self.not_reached.append(case)
            (folder / case.point).unlink(missing_ok=True)

    def _build_strike(self, case: Case, pid: int, at: float) -> Strike:
        if case.kind == CLIENT:
            name = case.kind
        else:
            name = self.bed.fleet.get_name(pid)
        match case.action:
            case FailpointAction.REDIS:
                return Strike(Fault.KILL_REDIS, EVERYBODY, at, f"{case.point} of {name}")
            case FailpointAction.DROP:
                return Strike(Fault.DROP, name, at, case.point)
            case FailpointAction.STOP:
                return Strike(
                    Fault.STOP,
                    name,
                    at,
                    case.point,
                    lasts_s=self.bed.fleet.size.lease_s * STOPPED_LEASES,
                )
            case FailpointAction.KILL:
                return Strike(KILLS.get(case.kind, Fault.KILL_WORKER), name, at, case.point)

    def _needs(self, trigger: Trigger) -> bool:
        return any(armed.case.trigger is trigger for armed in self._armed)

    def _provoke_armed_points(self) -> None:
        """Do what makes processes reach the armed points, if jobs alone do not."""
        if self._needs(Trigger.LOSE):
            with suppress(StoreError), translate_errors():
                delete_queue(self.bed.fleet.connection.redis, SUBMISSIONS_QUEUE)
        for armed in self._armed:
            if armed.case.trigger is Trigger.END:
                self._end_one(armed.case.kind)
            if armed.case.trigger is Trigger.UNREAD:
                make_unreadable(
                    self._required_handoff_bed,
                    to="" if armed.case.kind == WORKER else SUPERVISOR_QUEUE,
                )
        if self._needs(Trigger.API_MESSAGE):
            self._required_handoff_bed.system.send_messages()
        if self._needs(Trigger.SLOT):
            with suppress(StoreError):
                self._required_handoff_bed.system.add_slot()
        self._fail_evaluation(is_needed=self._needs(Trigger.EVALUATION_FAILURE))

    def _end_one(self, kind: str) -> None:
        """Tell a process of this kind to end. Take a process with a call in flight, because
        most points of an end are on the way of a running handoff.
        """
        now = time.monotonic()
        callers = {call.process for call in self.bed.model.calls[-LAST_CALLS:] if not call.out_at}
        ready = sorted(callers.intersection(self.bed.fleet.find_ready(kind)))
        if not ready or now - self._nudged_at.get(kind, 0.0) < NUDGE_EVERY_S:
            return
        self._nudged_at[kind] = now
        name = self._dice.choice(ready)
        if self.bed.fleet.send_signal(name, signal.SIGTERM):
            self.strikes.append(Strike(Fault.END, name, time.time()))

    def _fail_evaluation(self, *, is_needed: bool) -> None:
        """Make a supervisor raise an internal error as long as an armed case needs it. Do
        nothing while a case of the same point is armed.
        """
        for armed in self._armed:
            if (armed.case.kind, armed.case.point) == (SUPERVISOR, FAILS_AT):
                return
        points = self.bed.fleet.get_points(SUPERVISOR)
        if is_needed:
            arm(points, FAILS_AT, "error")
        else:
            (points / FAILS_AT).unlink(missing_ok=True)


def _exclude_each_other(case: Case, other: Case) -> bool:
    """Return whether two cases cannot be armed at once. They have the same point, or need the same
    action on the same kind of process, or both kill Redis.
    """
    if case.kind == other.kind and case.point == other.point:
        return True
    is_same_action = case.kind == other.kind and case.trigger is other.trigger
    if is_same_action and not case.trigger.is_met_by_jobs:
        return True
    return case.action is FailpointAction.REDIS and other.action is FailpointAction.REDIS


def _iterate_jobs(seed: int, draw: Draw, number: int = 0) -> Iterator[PlannedJob]:
    """Yield the jobs of a seed from a number on, without end."""
    while True:
        yield from generate_jobs(seed, 1, number, draw)
        number += 1
