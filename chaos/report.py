"""The books as a table for people, as JSON for programs, and as a verdict: every promise, what it allows, and what there was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from chaos.books import Books
from chaos.faults import Fault
from chaos.holes import Hole, Outcome

RECOVERY_S = 5.0
"""Beside the lease: what is promised."""
SHOWN = 5
"""Names of what has broken a promise."""


@dataclass(frozen=True, slots=True)
class Promise:
    """One line of the verdict."""

    what: str
    figure: str
    allowed: str
    is_kept: bool
    broken_by: tuple[str, ...] = ()


def promises_of(books: Books) -> list[Promise]:
    """Every promise that a run can break."""

    def none(what: str, found: list[str]) -> Promise:
        return Promise(what, str(len(found)), "0", not found, tuple(found))

    return [
        none("jobs lost", books.lost),
        none("jobs that ended twice", books.ended_twice),
        none("handoffs with two results", books.finished_twice),
        none("jobs that ended otherwise than planned", [f"{name}: {why}" for name, why in books.spoilt.items()]),
        Promise("calls repeated", str(books.repeated), f"{books.in_the_air} in the air", books.repeated <= books.in_the_air),
        none("calls repeated that were not in the air", [books.story_of(key) for key in books.unexplained]),
        none("jobs over their budget, by the server's books", books.overruns),
        _recovery(books),
        none("keys left behind", list(books.left_behind)),
        *([] if books.not_reached is None else [none("failpoints that nobody came by", list(books.not_reached))]),
    ]


def _recovery(books: Books) -> Promise:
    """One that was not measured is not kept, if anything was hit."""
    within = books.lease_s + RECOVERY_S
    late = [
        f"{one.strike.fault} {one.strike.target} {one.strike.point}: {' '.join(one.handoff)} after {one.seconds:.1f} s"
        for one in books.recoveries
        if one.is_alone and one.seconds > within
    ]
    longest = books.longest_recovery_s
    is_kept = not late and (longest is not None or not books.was_hit)
    return Promise("longest recovery", _seconds(longest), f"{within:.0f} s", is_kept, tuple(late))


def _seconds(measured: float | None) -> str:
    return "not measured" if measured is None else f"{measured:.1f} s"


def broken_of(books: Books) -> list[str]:
    """The promises that were broken."""
    return [promise.what for promise in promises_of(books) if not promise.is_kept]


def is_kept(books: Books) -> bool:
    return not broken_of(books)


def table_of(books: Books) -> str:
    """For a terminal, and as Markdown."""
    done = ", ".join(f"{count} x {fault}" for fault in Fault if (count := books.count(fault)))
    lines = ["| | | allowed | |", "|---|---|---|---|", f"| faults | {done or 'none'} | | |"]
    lines.append(f"| jobs submitted, ended | {len(books.jobs)}, {books.ended} | all | |")
    lines.append(f"| model calls made, needed without faults | {books.made}, {books.needed} | | |")
    for promise in promises_of(books):
        lines.append(f"| {promise.what} | {promise.figure} | {promise.allowed} | {'kept' if promise.is_kept else '**BROKEN**'} |")
    lines.append(f"| longest recovery while more was struck | {_seconds(books.longest_recovery_in_a_row_s)} | | |")
    if by := ", ".join(f"{count} x {fault}" for fault, count in books.repeated_by.most_common()):
        lines.append(f"| calls repeated, by what was struck | {by} | | |")
    lines += [f"| did not happen | {what} | | |" for what in books.not_happened]
    if books.given_up:
        lines.append(f"| jobs with a handoff that was killed three times in one turn | {len(books.given_up)} | | |")
    for promise in promises_of(books):
        lines += [f"  {promise.what}: {name}" for name in promise.broken_by[:SHOWN] if not promise.is_kept]
    return "\n".join(lines)


def holes_table(found: Mapping[str, Mapping[Hole, Outcome]]) -> str:
    """One line for each hole, one column for each system."""
    lines = [f"| | {' | '.join(found)} |", f"|---|{'---|' * len(found)}"]
    lines += [f"| {hole} | {' | '.join(_word(outcomes[hole]) for outcomes in found.values())} |" for hole in Hole]
    return "\n".join(lines)


def _word(outcome: Outcome) -> str:
    if not outcome.calm or not outcome.was_hit:
        return "says nothing: " + ("the fault did not happen" if outcome.calm else "not even without the fault does it end")
    return "ends" if outcome.ended else "**stuck**"


def holes_json(found: Mapping[str, Mapping[Hole, Outcome]]) -> dict[str, Any]:
    return {name: {hole.name: asdict(outcome) for hole, outcome in outcomes.items()} for name, outcomes in found.items()}


def json_of(books: Books) -> dict[str, Any]:
    """The same with all names."""
    return {
        "faults": {fault.name.lower(): books.count(fault) for fault in Fault},
        "jobs": len(books.jobs),
        "ended": books.ended,
        "calls_made": books.made,
        "calls_needed": books.needed,
        "calls_repeated": books.repeated,
        "calls_repeated_by": {fault.name.lower(): count for fault, count in books.repeated_by.items()},
        "calls_in_the_air": books.in_the_air,
        "longest_recovery_s": None if books.longest_recovery_s is None else round(books.longest_recovery_s, 2),
        "did_not_happen": list(books.not_happened),
        "lease_s": books.lease_s,
        "promises": [
            {"what": one.what, "figure": one.figure, "allowed": one.allowed, "kept": one.is_kept, "broken_by": list(one.broken_by)}
            for one in promises_of(books)
        ],
        "kept": is_kept(books),
    }
