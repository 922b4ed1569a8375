"""Report of a run: the invariants as a table, as JSON, and as a verdict on every promise with its
limit and the measured value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from handoff_queue.chaos.celery_gaps import Hole, Outcome
from handoff_queue.chaos.invariants import Books
from handoff_queue.chaos.run import Control
from handoff_queue.chaos.strikes import Fault
from handoff_queue.chaos.system import OVERRUNS

RECOVERY_S = 5.0
"""Promised seconds of recovery, in addition to the lease."""
SHOWN = 5
"""Names that are shown for a broken promise."""


NOT_THERE = "not there"


@dataclass(frozen=True, slots=True)
class Promise:
    """A line of the verdict."""

    what: str
    figure: str
    allowed: str
    is_kept: bool
    broken_by: tuple[str, ...] = ()


def promises_of(books: Books) -> list[Promise]:
    """Return every promise that a run can break. A promise that the system does not make is named."""
    all_promises = _promises_of(books)
    promises: list[Promise] = []
    for promise in all_promises:
        promises.append(
            replace(promise, figure="-", allowed=NOT_THERE, is_kept=True, broken_by=())
            if promise.what in books.absent
            else promise
        )
    return promises


def _promises_of(books: Books) -> list[Promise]:
    def none(what: str, breaches: list[str]) -> Promise:
        return Promise(what, str(len(breaches)), "0", not breaches, tuple(breaches))

    return [
        none("jobs lost", [f"{name} ({books.stories[name].why})" for name in books.lost]),
        none("jobs that ended twice", books.ended_twice),
        none("handoffs with two results", books.finished_twice),
        none(
            "jobs that ended otherwise than planned",
            [f"{name}: {why}" for name, why in books.spoilt.items()],
        ),
        Promise(
            "calls repeated",
            str(books.repeated),
            f"{books.in_the_air} in the air",
            books.repeated <= books.in_the_air,
        ),
        none(
            "calls repeated that were not in the air",
            [books.story_of(key) for key in books.unexplained],
        ),
        none("calls that nobody waited for", books.for_nobody),
        none(OVERRUNS, books.overruns),
        _recovery(books),
        none("keys left behind", list(books.left_behind)),
        none("requests that the Messages API would refuse", list(books.refused_requests)),
        *(
            []
            if books.not_reached is None
            else [none("failpoints that nobody came by", list(books.not_reached))]
        ),
    ]


def _recovery(books: Books) -> Promise:
    """Return the promise of recovery. It is not kept if processes were hit and no recovery was
    measured.
    """
    within = books.lease_s + RECOVERY_S
    late: list[str] = []
    for recovery in books.recoveries:
        if recovery.is_alone and recovery.seconds > within:
            late.append(
                f"{recovery.strike.fault} {recovery.strike.target} {recovery.strike.point}: "
                f"{' '.join(recovery.handoff)} after {recovery.seconds:.1f} s"
            )
    longest = books.longest_recovery_s
    is_kept = not late and (longest is not None or not books.was_hit)
    return Promise("longest recovery", _seconds(longest), f"{within:.0f} s", is_kept, tuple(late))


def _seconds(measured: float | None) -> str:
    if measured is None:
        return "not measured"
    return f"{measured:.1f} s"


def broken_of(books: Books) -> list[str]:
    """Return the broken promises."""
    whats: list[str] = []
    for promise in promises_of(books):
        if not promise.is_kept:
            whats.append(promise.what)
    return whats


def is_kept(books: Books) -> bool:
    return not broken_of(books)


def table_of(books: Books) -> str:
    """Return the table for a terminal, which is valid Markdown."""
    done = ", ".join(f"{count} x {fault}" for fault in Fault if (count := books.count(fault)))
    lines = ["| | | allowed | |", "|---|---|---|---|", f"| faults | {done or 'none'} | | |"]
    lines.append(f"| jobs submitted, ended | {len(books.jobs)}, {books.ended} | all | |")
    lines.append(
        f"| modes | {', '.join(f'{count} x {mode}' for mode, count in books.modes.items())} | | |"
    )
    if books.children:
        lines.append(f"| child jobs begun | {books.children} | | |")
    lines.append(f"| model calls made, needed without faults | {books.made}, {books.needed} | | |")
    for promise in promises_of(books):
        lines.append(
            f"| {promise.what} | {promise.figure} | {promise.allowed} | {_verdict(promise)} |"
        )
    lines.append(
        f"| longest recovery while more was struck | {_seconds(books.longest_recovery_in_a_row_s)} | | |"
    )
    if by := ", ".join(f"{count} x {fault}" for fault, count in books.repeated_by.most_common()):
        lines.append(f"| calls repeated, by what was struck | {by} | | |")
    lines += [f"| not there: {what} | {why} | | |" for what, why in books.absent.items()]
    lines += [f"| did not happen | {what} | | |" for what in books.not_happened]
    if books.given_up:
        lines.append(
            f"| jobs that were killed three times in a row, or a handoff of theirs in one turn | {len(books.given_up)} | | |"
        )
    for promise in promises_of(books):
        for name in promise.broken_by[:SHOWN]:
            if not promise.is_kept:
                lines.append(f"  {promise.what}: {name}")
    return "\n".join(lines)


def _verdict(promise: Promise) -> str:
    if promise.allowed == NOT_THERE:
        return ""
    if promise.is_kept:
        return "kept"
    return "**BROKEN**"


def control_table(control: Control) -> str:
    """Return the table of plain Celery under kills, at failpoints, and in each gap, next to this
    system.
    """
    parts = (
        ("under kills", table_of(control.kills)),
        ("at failpoints", table_of(control.failpoints)),
    )
    tables: list[str] = []
    for how, table in parts:
        tables.append(f"plain Celery {how}:\n\n{table}\n")
    return "\n".join([*tables, holes_table(control.holes)])


def control_json(control: Control) -> dict[str, Any]:
    runs = {"kills": json_of(control.kills), "failpoints": json_of(control.failpoints)}
    return {
        "plain_celery": runs,
        "holes": holes_json(control.holes),
        "kept": is_control_kept(control),
    }


def is_control_kept(control: Control) -> bool:
    """Return whether plain Celery has kept everything, too. Then the run proves nothing."""
    outcomes = [outcome for by_hole in control.holes.values() for outcome in by_hole.values()]
    return (
        is_kept(control.kills)
        and is_kept(control.failpoints)
        and all(outcome.calm and outcome.was_hit and outcome.ended for outcome in outcomes)
    )


def holes_table(by_system: Mapping[str, Mapping[Hole, Outcome]]) -> str:
    """Return a table with a line for each gap, and a column for each system."""
    lines = [f"| | {' | '.join(by_system)} |", f"|---|{'---|' * len(by_system)}"]
    for hole in Hole:
        lines.append(
            f"| {hole} | {' | '.join(_word(outcomes[hole]) for outcomes in by_system.values())} |"
        )
    return "\n".join(lines)


def _word(outcome: Outcome) -> str:
    if not outcome.calm or not outcome.was_hit:
        return "says nothing: " + (
            "the fault did not happen" if outcome.calm else "not even without the fault does it end"
        )
    if outcome.ended:
        return "ends"
    return "**stuck**"


def holes_json(by_system: Mapping[str, Mapping[Hole, Outcome]]) -> dict[str, Any]:
    holes: dict[str, Any] = {}
    for name, outcomes in by_system.items():
        holes[name] = {hole.name: asdict(outcome) for hole, outcome in outcomes.items()}
    return holes


def json_of(books: Books) -> dict[str, Any]:
    """Return the report as JSON with all names."""
    return {
        "faults": {fault.name.lower(): books.count(fault) for fault in Fault},
        "jobs": len(books.jobs),
        "ended": books.ended,
        "child_jobs": books.children,
        "modes": books.modes,
        "calls_made": books.made,
        "calls_needed": books.needed,
        "calls_repeated": books.repeated,
        "calls_repeated_by": {
            fault.name.lower(): count for fault, count in books.repeated_by.items()
        },
        "calls_in_the_air": books.in_the_air,
        "longest_recovery_s": None
        if books.longest_recovery_s is None
        else round(books.longest_recovery_s, 2),
        "did_not_happen": list(books.not_happened),
        "not_there": dict(books.absent),
        "lease_s": books.lease_s,
        "promises": [
            {
                "what": promise.what,
                "figure": promise.figure,
                "allowed": promise.allowed,
                "kept": promise.is_kept,
                "broken_by": list(promise.broken_by),
            }
            for promise in promises_of(books)
        ],
        "kept": is_kept(books),
    }
