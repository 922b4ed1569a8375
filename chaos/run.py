"""A chaos run: jobs are submitted while the killer strikes, or while every failpoint is tried.
Then the invariants are checked.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from handoff_queue.chaos.failpoint_cases import Case, list_cases
from handoff_queue.chaos.failpoint_run import FailpointRun
from handoff_queue.chaos.fleet import SUPERVISOR, Size
from handoff_queue.chaos.handoff_system import HANDOFF_PROJECT
from handoff_queue.chaos.invariants import RunRecords
from handoff_queue.chaos.job_generator import Draw, generate_jobs, without_missing_extras
from handoff_queue.chaos.killer import PAUSE_S, Killer, draw_actions
from handoff_queue.chaos.system import Kind, System
from handoff_queue.chaos.test_bed import CHECK_EVERY_S, Progress, TestBed, running_test_bed
from handoff_queue.shared.types.errors import StoreError

if TYPE_CHECKING:
    from handoff_queue.chaos.planned_jobs import PlannedJob
    from handoff_queue.shared.local.fork_server import ForkServer

SINGLE_STRIKES = 5
"""Number of jobs that are struck once each, after the other jobs have ended."""
LONG_CALL_S = 0.5
"""Least duration of a call, in seconds, for a strike in such a job."""
TURNS = (0.3, 0.7)
"""Shares of the kills after which slots of schedules become due and every supervisor is killed."""
AT_ONCE = 12
"""Most open jobs."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a run."""

    seed: int
    jobs: int = 50
    kills: int = 20
    """Least number of processes to kill."""
    alone: int = SINGLE_STRIKES
    """Number of jobs after the others that are struck once each."""
    size: Size = field(default_factory=Size)
    draw: Draw | None = None
    """Kinds of jobs to draw from; None: all kinds that the system supports."""
    pause_s: tuple[float, float] = PAUSE_S
    """Shortest and longest pause after an action of the killer, in seconds."""
    fork_server: ForkServer | None = None
    """A running fork server for the processes; None: the run starts one."""


def run(options: Options, tell: Progress, kind: Kind[System] = HANDOFF_PROJECT) -> RunRecords:
    """Run the requested number of jobs under a killer until it has killed often enough. Then
    strike further jobs once each.
    """
    with running_test_bed(kind, options.size, options.fork_server) as bed:
        tell(f"{options.size.supervisors} supervisors and {options.size.workers} workers are up")
        killer = Killer(
            bed.fleet, draw_actions(options.seed, options.pause_s), bed.system.frozen_at
        )
        draw = _choose_draw(options, kind, tell)
        bed.model.add(bed.system.begin_users(options.seed))
        _strike_at_random(bed, killer, options, tell, draw)
        killer.undo_faults()
        tell(
            f"{killer.kills} kills, {len(killer.strikes) - killer.kills} other faults;"
            f" {len(bed.open)} jobs are still open"
        )
        bed.system.finish()
        bed.settle()
        not_struck: list[str] = []
        if options.kills:
            not_struck = _strike_alone(bed, killer, options, draw)
        return bed.close(killer.strikes, not_happened=[*killer.not_happened, *not_struck])


def _choose_draw(options: Options, kind: Kind[System], tell: Progress) -> Draw:
    """Return the kinds of jobs of a run, and tell which shape is left out."""
    draw, why = without_missing_extras(options.draw or kind.draw)
    if why:
        tell(why)
    return draw


def _strike_alone(bed: TestBed[System], killer: Killer, options: Options, draw: Draw) -> list[str]:
    """Measure the recovery from a single strike. Run one job at a time, kill a process during a
    long call of the job, and wait until the job has ended.

    Return one line for each strike that could not be made.
    """
    not_struck = []
    if bed.is_busy:
        return [f"{options.alone} strikes alone: jobs were still open"]
    for job in generate_jobs(options.seed, options.alone, options.jobs, draw):
        while not bed.submit(job):
            time.sleep(CHECK_EVERY_S)
        is_struck = False
        family: dict[str, PlannedJob] = {}
        for member in job.family:
            family[member.name] = member
        while bed.open and not is_struck:
            last = bed.model.calls[-1]
            running_job = family.get(last.key.job)
            is_long = (
                running_job is not None
                and running_job.draw_seconds(last.key) >= LONG_CALL_S
                and time.time() - last.at < LONG_CALL_S / 2
            )
            is_struck = is_long and killer.kill(last.process)
            bed.observe()
            time.sleep(CHECK_EVERY_S)
        if not is_struck:
            not_struck.append(f"a strike alone on {job.name}: no long call was in flight")
        bed.settle()
    return not_struck


def _strike_at_random(
    bed: TestBed[System], killer: Killer, options: Options, tell: Progress, draw: Draw
) -> None:
    """Submit jobs at the pace of the kills, so that the killer always has a running job."""
    waiting = generate_jobs(options.seed, options.jobs, draw=draw)
    told_at = time.monotonic()
    turns = deque(TURNS)
    while waiting or killer.kills < options.kills:
        submitted_jobs = options.jobs - len(waiting)
        is_due = (
            killer.kills >= options.kills
            or submitted_jobs < AT_ONCE // 2
            or submitted_jobs * options.kills <= killer.kills * options.jobs
        )
        if waiting and is_due and len(bed.open) < AT_ONCE and bed.submit(waiting[0]):
            waiting.pop(0)
        progress = killer.kills / options.kills if options.kills else submitted_jobs / options.jobs
        if turns and progress >= turns[0] and _make_slots_due(bed):
            turns.popleft()
            if killer.kills < options.kills:
                killer.kill_all(SUPERVISOR)
        if killer.kills < options.kills:
            killer.advance()
        bed.observe()
        if time.monotonic() - told_at > 10:
            told_at = time.monotonic()
            tell(
                f"{killer.kills} of {options.kills} kills, {submitted_jobs - len(bed.open)} of"
                f" {options.jobs} jobs have ended"
            )
        time.sleep(CHECK_EVERY_S)


def _make_slots_due(bed: TestBed[System]) -> bool:
    """Make slots of the schedules due. Return False if Redis is unreachable, too."""
    try:
        return bed.system.make_slots_due()
    except StoreError:
        return False


def try_failpoints(
    options: Options, tell: Progress, chosen_cases: Sequence[Case] | None = None
) -> RunRecords:
    """Try failpoints while jobs run.

    Args:
        chosen_cases: the cases. None: every failpoint in every kind of process that has it.
    """
    with running_test_bed(HANDOFF_PROJECT, options.size, options.fork_server) as bed:
        draw = _choose_draw(options, HANDOFF_PROJECT, tell)
        failpoint_run = FailpointRun(bed, options.seed, tell, draw, handoff_bed=bed)
        return try_cases(
            failpoint_run, list_cases() if chosen_cases is None else list(chosen_cases)
        )


def try_cases(failpoint_run: FailpointRun, all_of: list[Case]) -> RunRecords:
    """Try these failpoints, wait for the jobs, and return the records."""
    failpoint_run.bed.model.add(failpoint_run.bed.system.begin_users(failpoint_run.seed))
    failpoint_run.run(all_of)
    failpoint_run.bed.system.finish()
    failpoint_run.tell(
        f"{len(failpoint_run.strikes)} faults; {len(failpoint_run.bed.open)} jobs are still open"
    )
    failpoint_run.bed.settle()
    return failpoint_run.bed.close(
        failpoint_run.strikes, [str(case) for case in failpoint_run.not_reached]
    )
