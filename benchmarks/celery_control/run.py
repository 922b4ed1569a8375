"""The runs of the control: jobs under a killer, failpoints, and the five gaps of chords."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from benchmarks.celery_control import gaps
from benchmarks.celery_control.system import PLAIN
from handoff_queue.chaos.failpoint_cases import Action, Case, cases
from handoff_queue.chaos.failpoint_run import Trial
from handoff_queue.chaos.fleet import Size
from handoff_queue.chaos.invariants import RunRecords
from handoff_queue.chaos.run import Options, run, try_cases
from handoff_queue.chaos.system import Kind, System
from handoff_queue.chaos.test_bed import Progress, stage
from handoff_queue.shared.local.fork_server import ForkServer

PLAIN_CELERY, HANDOFF = "plain Celery", "handoff"


@dataclass(frozen=True, slots=True)
class Control:
    """Results of plain Celery with one seed."""

    kills: RunRecords
    failpoints: RunRecords
    gaps: dict[str, dict[gaps.Gap, gaps.Outcome]]
    """Outcomes by system: plain Celery's, and this project's for comparison."""


def run_control(options: Options, tell: Progress) -> Control:
    """Run the plan of this seed, its faults and all failpoints on plain Celery. Then try the
    five gaps in both systems.
    """
    tell(f"{PLAIN_CELERY}: jobs under a killer")
    kills = run(options, tell, PLAIN)
    tell(f"{PLAIN_CELERY}: failpoints")
    failpoints = try_failpoints(options, tell)
    tell(f"the five gaps, in {PLAIN_CELERY} and in {HANDOFF}")
    by_system = {
        PLAIN_CELERY: try_gaps(gaps.PLAIN_WITH_GAPS, tell),
        HANDOFF: try_gaps(gaps.OURS_WITH_GAPS, tell),
    }
    return Control(kills, failpoints, by_system)


def try_failpoints(
    options: Options, tell: Progress, actions: Collection[Action] = tuple(Action)
) -> RunRecords:
    """Try the failpoints of the project in plain Celery, as far as it has them, with these
    actions.
    """
    wanted = []
    for case in cases():
        if case.action in actions:
            wanted.append(case)
    with stage(PLAIN, options.size, options.fork_server) as bed:
        present, absent = _cases_of(bed.system, wanted)
        records = try_cases(Trial(bed, options.seed, tell, PLAIN.draw), present)
    names = sorted({case.point.rpartition(".")[0] for case in absent})
    what = f"{len(absent)} of {len(wanted)} failpoints"
    return replace(records, absent={**records.absent, what: f"no counterpart: {', '.join(names)}"})


def _cases_of(system: System, wanted: Collection[Case]) -> tuple[list[Case], list[Case]]:
    """Return the failpoints that this system has, under its names, and the missing ones."""
    present: dict[Case, None] = {}
    absent: list[Case] = []
    for case in wanted:
        point = system.point(case.point, case.kind)
        if point is None:
            absent.append(case)
        else:
            present[replace(case, point=point)] = None
    return list(present), absent


def try_gaps(
    kind: Kind[System], tell: Progress, fork_server: ForkServer | None = None
) -> dict[gaps.Gap, gaps.Outcome]:
    """Try the five gaps of chords in one system.

    Args:
        fork_server: a running fork server for the processes; None: the run starts one.
    """
    with stage(kind, Size(), fork_server) as bed:
        return gaps.try_gaps(bed, tell)
