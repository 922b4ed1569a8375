"""The runs of the control: jobs under a killer, failpoints, and the five gaps of chords. Their
report, as tables and as JSON.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks.celery_control import gaps
from benchmarks.celery_control.gaps import CeleryGap, GapOutcome
from benchmarks.celery_control.system import PLAIN
from handoff_queue.chaos.failpoint_cases import Case, FailpointAction, list_cases
from handoff_queue.chaos.failpoint_run import FailpointRun
from handoff_queue.chaos.fleet import Size
from handoff_queue.chaos.invariants import RunRecords
from handoff_queue.chaos.report import convert_to_json, format_table, is_kept
from handoff_queue.chaos.run import Options, run, try_cases
from handoff_queue.chaos.system import Kind, System
from handoff_queue.chaos.test_bed import Progress, running_test_bed
from handoff_queue.shared.local.fork_server import ForkServer

PLAIN_CELERY, HANDOFF = "plain Celery", "handoff"


@dataclass(frozen=True, slots=True)
class Control:
    """Results of plain Celery with one seed."""

    kills: RunRecords
    failpoints: RunRecords
    gaps: dict[str, dict[CeleryGap, GapOutcome]]
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
    options: Options, tell: Progress, actions: Collection[FailpointAction] = tuple(FailpointAction)
) -> RunRecords:
    """Try the failpoints of the project in plain Celery, as far as it has them, with these
    actions.
    """
    wanted_cases = []
    for case in list_cases():
        if case.action in actions:
            wanted_cases.append(case)
    with running_test_bed(PLAIN, options.size, options.fork_server) as bed:
        present, absent = _select_cases(bed.system, wanted_cases)
        records = try_cases(FailpointRun(bed, options.seed, tell, PLAIN.draw), present)
    names = sorted({case.point.rpartition(".")[0] for case in absent})
    subject = f"{len(absent)} of {len(wanted_cases)} failpoints"
    return replace(
        records, absent={**records.absent, subject: f"no counterpart: {', '.join(names)}"}
    )


def _select_cases(system: System, wanted_cases: Collection[Case]) -> tuple[list[Case], list[Case]]:
    """Return the failpoints that this system has, under its names, and the missing ones."""
    present: dict[Case, None] = {}
    absent: list[Case] = []
    for case in wanted_cases:
        point = system.get_point_name(case.point, case.kind)
        if point is None:
            absent.append(case)
        else:
            present[replace(case, point=point)] = None
    return list(present), absent


def try_gaps(
    kind: Kind[System], tell: Progress, fork_server: ForkServer | None = None
) -> dict[CeleryGap, GapOutcome]:
    """Try the five gaps of chords in one system.

    Args:
        fork_server: a running fork server for the processes; None: the run starts one.
    """
    with running_test_bed(kind, Size(), fork_server) as bed:
        return gaps.try_gaps(bed, tell)


def format_control(control: Control) -> str:
    """Return the tables of plain Celery under kills and at failpoints, and the table of the
    gaps.
    """
    tables = [
        f"{PLAIN_CELERY} under kills:\n\n{format_table(control.kills)}\n",
        f"{PLAIN_CELERY} at failpoints:\n\n{format_table(control.failpoints)}\n",
        format_gap_table(control.gaps),
    ]
    return "\n".join(tables)


def convert_control(control: Control) -> dict[str, Any]:
    gaps: dict[str, Any] = {}
    for system, outcomes in control.gaps.items():
        gaps[system] = {gap.name: asdict(outcome) for gap, outcome in outcomes.items()}
    return {
        "plain_celery": {
            "kills": convert_to_json(control.kills),
            "failpoints": convert_to_json(control.failpoints),
        },
        "gaps": gaps,
        "kept": is_everything_kept(control),
    }


def is_everything_kept(control: Control) -> bool:
    """Return whether plain Celery kept every promise, too. Then the run proves nothing."""
    if not is_kept(control.kills) or not is_kept(control.failpoints):
        return False
    for outcomes in control.gaps.values():
        for outcome in outcomes.values():
            if not (outcome.calm and outcome.was_hit and outcome.has_ended):
                return False
    return True


def format_gap_table(by_system: Mapping[str, Mapping[CeleryGap, GapOutcome]]) -> str:
    """Return a table with a line for each gap, and a column for each system."""
    lines = [f"| | {' | '.join(by_system)} |", f"|---|{'---|' * len(by_system)}"]
    for gap in CeleryGap:
        words = [_format_outcome(outcomes[gap]) for outcomes in by_system.values()]
        lines.append(f"| {gap} | {' | '.join(words)} |")
    return "\n".join(lines)


def _format_outcome(outcome: GapOutcome) -> str:
    if not outcome.calm:
        return "says nothing: the job does not end without the fault either"
    if not outcome.was_hit:
        return "says nothing: the fault did not happen"
    if outcome.has_ended:
        return "ends"
    return "**stuck**"
