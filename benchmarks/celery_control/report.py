"""Report of the control, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from benchmarks.celery_control.gaps import Gap, Outcome
from benchmarks.celery_control.run import PLAIN_CELERY, Control
from handoff_queue.chaos.report import is_kept, json_of, table_of


def table(control: Control) -> str:
    """Return the tables of plain Celery under kills and at failpoints, and the table of the
    gaps.
    """
    tables = [
        f"{PLAIN_CELERY} under kills:\n\n{table_of(control.kills)}\n",
        f"{PLAIN_CELERY} at failpoints:\n\n{table_of(control.failpoints)}\n",
        gap_table(control.gaps),
    ]
    return "\n".join(tables)


def as_json(control: Control) -> dict[str, Any]:
    gaps: dict[str, Any] = {}
    for system, outcomes in control.gaps.items():
        gaps[system] = {gap.name: asdict(outcome) for gap, outcome in outcomes.items()}
    return {
        "plain_celery": {
            "kills": json_of(control.kills),
            "failpoints": json_of(control.failpoints),
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
            if not (outcome.calm and outcome.was_hit and outcome.ended):
                return False
    return True


def gap_table(by_system: Mapping[str, Mapping[Gap, Outcome]]) -> str:
    """Return a table with a line for each gap, and a column for each system."""
    lines = [f"| | {' | '.join(by_system)} |", f"|---|{'---|' * len(by_system)}"]
    for gap in Gap:
        words = [_word(outcomes[gap]) for outcomes in by_system.values()]
        lines.append(f"| {gap} | {' | '.join(words)} |")
    return "\n".join(lines)


def _word(outcome: Outcome) -> str:
    if not outcome.calm:
        return "says nothing: the job does not end without the fault either"
    if not outcome.was_hit:
        return "says nothing: the fault did not happen"
    if outcome.ended:
        return "ends"
    return "**stuck**"
