"""Report of a run, as a table and as JSON: each promise with its measured value, its limit and
the verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from handoff_queue.chaos.faults import Fault
from handoff_queue.chaos.features import FeatureRecords
from handoff_queue.chaos.invariants import RunRecords
from handoff_queue.chaos.system import OVERRUNS

RECOVERY_S = 5.0
"""Longest promised recovery in seconds, in addition to the lease."""
MAX_SHOWN = 5
"""Most breaches that the table shows for a promise."""
NOT_THERE = "not there"
"""Limit of a promise that the system does not make."""


@dataclass(frozen=True, slots=True)
class Promise:
    """A promise, and whether the run kept it."""

    name: str
    """Name of the promise: the subject of the measured value."""
    figure: str
    """The measured value."""
    limit: str
    """The limit."""
    is_kept: bool
    broken_by: tuple[str, ...] = ()
    """One line for each breach."""


def list_promises(records: RunRecords) -> list[Promise]:
    """Return every promise that a run can break. A promise that the system does not make has
    the limit `NOT_THERE`, and counts as kept.
    """
    promises: list[Promise] = []
    for promise in _check_promises(records):
        if promise.name in records.absent:
            promises.append(Promise(promise.name, "-", NOT_THERE, is_kept=True))
        else:
            promises.append(promise)
    return promises


def _check_promises(records: RunRecords) -> list[Promise]:
    lost_jobs = []
    for name in records.lost:
        lost_jobs.append(f"{name} ({records.job_records[name].why})")
    repetition_promise = Promise(
        "calls repeated",
        str(records.repeated),
        f"{records.in_flight} in flight",
        records.repeated <= records.in_flight,
    )
    promises = [
        _build_promise_of_none("jobs lost", lost_jobs),
        _build_promise_of_none("jobs that ended twice", records.ended_twice),
        _build_promise_of_none("handoffs with two results", records.finished_twice),
        _build_promise_of_none(
            "jobs that ended otherwise than planned", _format_lines(records.spoilt)
        ),
        repetition_promise,
        _build_promise_of_none(
            "calls repeated that were not in flight",
            list(map(records.describe_copies, records.unexplained)),
        ),
        _build_promise_of_none("calls that no job needed", records.unneeded_calls),
        _build_promise_of_none(OVERRUNS, records.overruns),
        _check_recovery(records),
        _build_promise_of_none("keys left behind", records.left_behind),
        _build_promise_of_none(
            "requests that the Messages API would refuse", records.refused_requests
        ),
    ]
    for checked in _list_feature_records(records):
        for promise_name, breaches in checked.find_breaches().items():
            promises.append(_build_promise_of_none(promise_name, breaches))
    if records.not_reached is not None:
        promises.append(
            _build_promise_of_none("failpoints that no process reached", records.not_reached)
        )
    return promises


def _list_feature_records(records: RunRecords) -> list[FeatureRecords]:
    """Return the records of the HTTP API and of the features."""
    return [*filter(None, [records.api]), *records.features]


def _build_promise_of_none(name: str, breaches: Sequence[str]) -> Promise:
    """Return the promise that there is no such breach."""
    return Promise(name, str(len(breaches)), "0", not breaches, tuple(breaches))


def _format_lines(deviations: Mapping[str, str]) -> list[str]:
    return [f"{name}: {deviation}" for name, deviation in deviations.items()]


def _check_recovery(records: RunRecords) -> Promise:
    """Return the promise of the recovery time. The promise is broken if a handoff was hit and no
    recovery was measured.
    """
    within = records.lease_s + RECOVERY_S
    late: list[str] = []
    for recovery in records.promised_recoveries:
        if recovery.seconds > within:
            late.append(
                f"{recovery.strike.fault} {recovery.strike.target} {recovery.strike.point}: "
                f"{' '.join(recovery.handoff)} after {recovery.seconds:.1f} s"
            )
    longest = records.longest_recovery_s
    is_kept = not late and (longest is not None or not records.was_hit)
    return Promise(
        "longest recovery", _format_seconds(longest), f"{within:.0f} s", is_kept, tuple(late)
    )


def _format_seconds(seconds: float | None) -> str:
    if seconds is None:
        return "not measured"
    return f"{seconds:.1f} s"


def find_broken_promises(records: RunRecords) -> list[str]:
    """Return the names of the broken promises."""
    return [promise.name for promise in list_promises(records) if not promise.is_kept]


def is_kept(records: RunRecords) -> bool:
    """Return whether the run kept every promise."""
    return not find_broken_promises(records)


def _format_counts(counts: Iterable[tuple[str, int]]) -> str:
    """Return counts as a list in words, without zeros."""
    return ", ".join(f"{count} x {name}" for name, count in counts if count)


def format_table(records: RunRecords) -> str:
    """Return the table for a terminal, which is valid Markdown."""
    faults = _format_counts((fault, records.count(fault)) for fault in Fault)
    lines = ["| | | allowed | |", "|---|---|---|---|", f"| faults | {faults or 'none'} | | |"]
    lines.append(f"| jobs submitted, ended | {len(records.jobs)}, {records.ended} | all | |")
    lines.append(f"| modes | {_format_counts(records.modes.items())} | | |")
    if records.children:
        lines.append(f"| child jobs begun | {records.children} | | |")
    lines.append(
        f"| model calls made, needed without faults | {records.call_count}, {records.needed} | | |"
    )
    for checked in _list_feature_records(records):
        figures = checked.collect_figures()
        lines.append(f"| {', '.join(figures)} | {', '.join(map(str, figures.values()))} | | |")
    for promise in list_promises(records):
        lines.append(
            f"| {promise.name} | {promise.figure} | {promise.limit} | {_format_verdict(promise)} |"
        )
    joint_recovery = _format_seconds(records.longest_joint_recovery_s)
    lines.append(f"| longest recovery with further faults | {joint_recovery} | | |")
    if reasons := _format_counts(records.repeated_by.most_common()):
        lines.append(f"| calls repeated, by fault | {reasons} | | |")
    for subject, why in records.absent.items():
        lines.append(f"| not there: {subject} | {why} | | |")
    for subject in records.not_happened:
        lines.append(f"| did not happen | {subject} | | |")
    if records.given_up:
        lines.append(
            "| jobs ended after three kills in a row of a supervisor or of one turn |"
            f" {len(records.given_up)} | | |"
        )
    for promise in list_promises(records):
        for name in promise.broken_by[:MAX_SHOWN]:
            if not promise.is_kept:
                lines.append(f"  {promise.name}: {name}")
    return "\n".join(lines)


def _format_verdict(promise: Promise) -> str:
    if promise.limit == NOT_THERE:
        return ""
    if promise.is_kept:
        return "kept"
    return "**BROKEN**"


def convert_to_json(records: RunRecords) -> dict[str, Any]:
    """Return the report as JSON, with all breaches."""
    longest_recovery_s = records.longest_recovery_s
    if longest_recovery_s is not None:
        longest_recovery_s = round(longest_recovery_s, 2)
    repeated_by = {}
    for fault, count in records.repeated_by.items():
        repeated_by[fault.name.lower()] = count
    return {
        "faults": {fault.name.lower(): records.count(fault) for fault in Fault},
        "jobs": len(records.jobs),
        "ended": records.ended,
        "child_jobs": records.children,
        "modes": records.modes,
        "api": _convert_figures([records.api] if records.api else []),
        "features": _convert_figures(records.features),
        "calls_made": records.call_count,
        "calls_needed": records.needed,
        "calls_repeated": records.repeated,
        "calls_repeated_by": repeated_by,
        "calls_in_flight": records.in_flight,
        "longest_recovery_s": longest_recovery_s,
        "did_not_happen": list(records.not_happened),
        "not_there": dict(records.absent),
        "lease_s": records.lease_s,
        "promises": list(map(_convert_promise, list_promises(records))),
        "kept": is_kept(records),
    }


def _convert_figures(checked: Sequence[FeatureRecords]) -> dict[str, int]:
    figures: dict[str, int] = {}
    for records in checked:
        for name, number in records.collect_figures().items():
            figures[name.lower().replace(" ", "_")] = number
    return figures


def _convert_promise(promise: Promise) -> dict[str, Any]:
    return {
        "what": promise.name,
        "figure": promise.figure,
        "allowed": promise.limit,
        "kept": promise.is_kept,
        "broken_by": list(promise.broken_by),
    }
