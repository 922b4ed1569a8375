"""The five gaps of plain chords on Redis, each hit by its own failpoint. In plain Celery the
chord is stuck; in this project the job ends.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from benchmarks.celery_control.system import PLAIN
from benchmarks.celery_control.tasks import DEDUPLICATES
from handoff_queue.chaos.fleet import SUPERVISOR, Fleet, Member, arm
from handoff_queue.chaos.handoff_system import HANDOFF_PROJECT
from handoff_queue.chaos.job_shapes import Shape
from handoff_queue.chaos.leaks import UNACKED
from handoff_queue.chaos.planned_jobs import PlannedJob, PlannedStep
from handoff_queue.chaos.system import Kind, Made_co, System
from handoff_queue.chaos.test_bed import CHECK_EVERY_S, Progress, TestBed
from handoff_queue.shared.observability.failpoints import AFTER, BEFORE
from handoff_queue.shared.store.redis.connection import translate_errors
from handoff_queue.shared.types.names import SUPERVISOR_QUEUE

STUCK_AFTER_S = 4.0
"""Seconds without any message of a chord after which it counts as stuck. No process is frozen
in this run, so no process can hold a message longer.
"""
GIVEN_UP_AFTER_S = 60.0


class CeleryGap(StrEnum):
    """Gaps of Celery, as chaos/RESULTS.md numbers them."""

    H1 = "H1: a pool's child is killed after it has stored its result, before the part is counted"
    H2 = "H2: the same to a whole worker that drops tasks which have succeeded before"
    H3 = "H3: a pool's child is killed when all parts are counted, before the body is published"
    H4 = "H4: one answer of Redis is lost, to the count of the last part"
    H5 = "H5: a message is popped for a worker that is stopped, and then killed"

    @property
    def key(self) -> str:
        return self.name.lower()

    def list_orders(self, counted_at: str) -> tuple[tuple[str, str], ...]:
        """Return the failpoints to arm in the worker, and their actions.

        Args:
            counted_at: see `System`.
        """
        match self:
            case CeleryGap.H1 | CeleryGap.H2:
                return (("chord.part.before", "kill"),)
            case CeleryGap.H3:
                return ((f"publish.{SUPERVISOR_QUEUE}.{BEFORE}", "kill"),)
            case CeleryGap.H4:
                return ((counted_at, "drop"),)
            case CeleryGap.H5:
                return ()

    @property
    def pool(self) -> str:
        if self in (CeleryGap.H1, CeleryGap.H3):
            return "prefork"
        return "threads"


QUEUES = {
    CeleryGap.H1: "generalist",
    CeleryGap.H2: "analyst",
    CeleryGap.H3: "writer",
    CeleryGap.H4: "researcher",
    CeleryGap.H5: "coder",
}
"""Queue of each gap. Only the worker of the gap serves it."""


def _make_kind(kind: Kind[Made_co], app: str, make: Callable[[Fleet], Made_co]) -> Kind[Made_co]:
    """Return a system with one worker for each gap, one supervisor and no other workers.

    Args:
        app: the workers' app.
        make: makes the system on a running fleet.
    """
    environments = {CeleryGap.H2: {DEDUPLICATES: "1"}}
    workers: list[Member] = []
    for gap, queue in QUEUES.items():
        workers.append(
            Member(
                gap.key,
                gap.key,
                app,
                ("-Q", queue, "-P", gap.pool, "-c", "1"),
                environments.get(gap, {}),
            )
        )
    return Kind(
        lambda size: [*kind.members(replace(size, workers=0, supervisors=1, slots=8)), *workers],
        make,
        kind.draw,
    )


OURS_WITH_GAPS = _make_kind(HANDOFF_PROJECT, "handoff_queue.workers.app", HANDOFF_PROJECT.make)
PLAIN_WITH_GAPS = _make_kind(
    PLAIN,
    "benchmarks.celery_control.app",
    lambda fleet: replace(PLAIN.make(fleet), stuck_after_s=STUCK_AFTER_S),
)


@dataclass(frozen=True, slots=True)
class GapOutcome:
    """Outcome of the two jobs of one gap. The result of the second counts only if `calm` and
    `was_hit` are True.
    """

    calm: bool
    """True if the job without the fault ended."""
    was_hit: bool
    """True if the fault happened."""
    has_ended: bool
    """True if the job with the fault ended."""


def try_gaps(bed: TestBed[System], tell: Progress) -> dict[CeleryGap, GapOutcome]:
    """Run each gap's job of one step twice: without the fault, then with it. H5 runs first and
    alone, because the others publish, too.
    """
    for gap in CeleryGap:
        _begin(bed, gap, _name_calm_job(gap))
    calm = _wait_for_ends(bed, {gap: _name_calm_job(gap) for gap in CeleryGap})
    was_lost = _lose_a_message(bed)
    for gap in CeleryGap:
        for point, action in gap.list_orders(bed.system.counted_at):
            arm(bed.fleet.get_points(gap.key), point, action)
        if gap is not CeleryGap.H5:
            _begin(bed, gap, gap.key)
    ends = _wait_for_ends(bed, {gap: gap.key for gap in CeleryGap})
    outcomes = {}
    for gap in CeleryGap:
        outcomes[gap] = GapOutcome(
            calm[gap], was_lost if gap is CeleryGap.H5 else _was_hit(bed, gap), ends[gap]
        )
    for gap, outcome in outcomes.items():
        tell(f"{gap}: {'goes on' if outcome.has_ended else 'stuck'}")
    return outcomes


def _begin(bed: TestBed[System], gap: CeleryGap, name: str) -> None:
    job = PlannedJob(
        name, Shape.PARALLEL, (PlannedStep("a", QUEUES[gap]),), seed=1, trouble_share=0.0
    )
    while not bed.submit(job):
        time.sleep(CHECK_EVERY_S)


def _name_calm_job(gap: CeleryGap) -> str:
    return f"{gap.key}-calm"


def _was_hit(bed: TestBed[System], gap: CeleryGap) -> bool:
    return any(bed.fleet.get_points(gap.key).glob("*@*"))


def _wait_for_ends(bed: TestBed[System], names: dict[CeleryGap, str]) -> dict[CeleryGap, bool]:
    """Return whether each job ended."""
    until = time.monotonic() + GIVEN_UP_AFTER_S
    while bed.open and time.monotonic() < until:
        bed.observe()
        time.sleep(CHECK_EVERY_S)
    with translate_errors():
        ends: dict[CeleryGap, bool] = {}
        for gap, name in names.items():
            ends[gap] = name in bed.system.find_ended_jobs([name])
        return ends


def _lose_a_message(bed: TestBed[System]) -> bool:
    """Have a message published while its worker is stopped, so that Redis writes the message
    into the worker's socket, and kill the worker.

    Return True if this happened: the worker was stopped, the message was published, and Redis
    did not hold it any more.
    """
    pid, points, queue = (
        bed.fleet.list_processes()[CeleryGap.H5.key],
        bed.fleet.get_points(SUPERVISOR),
        QUEUES[CeleryGap.H5],
    )
    before, after = (
        bed.system.get_point_name(f"publish.part.{moment}", SUPERVISOR, queue)
        for moment in (BEFORE, AFTER)
    )
    arm(points, f"{before}", f"stop {pid}")
    # zero seconds: it only shows that a process reached the point
    arm(points, f"{after}", "freeze 0")

    def is_published() -> bool:
        return _is_stopped(pid) and any(points.glob(f"{after}@*"))

    _begin(bed, CeleryGap.H5, CeleryGap.H5.key)
    _wait_until(is_published)
    was_lost = is_published() and _is_nowhere(bed, queue)
    os.kill(pid, signal.SIGKILL)
    return was_lost


def _wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for a condition, up to the limit of this run."""
    until = time.monotonic() + GIVEN_UP_AFTER_S
    while not is_so() and time.monotonic() < until:
        time.sleep(CHECK_EVERY_S)


def _is_stopped(pid: int) -> bool:
    with suppress(OSError), Path(f"/proc/{pid}/stat").open() as stat:
        return stat.read().rpartition(")")[2].split()[0] == "T"
    return False


def _is_nowhere(bed: TestBed[System], queue: str) -> bool:
    """Return whether no message of this queue is queued or unacknowledged."""
    client = bed.fleet.connection.redis
    if client.llen(queue):
        return False
    return all(json.loads(entry)[2] != queue for entry in client.hvals(UNACKED))
