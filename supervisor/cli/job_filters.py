"""Options that select jobs by status, tenant and age."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from handoff_queue.shared.store.jobs import JobFilter
from handoff_queue.shared.text.durations import DurationRange
from handoff_queue.shared.text.words import suggestion
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.limits import MOST_SECONDS
from handoff_queue.supervisor.cli.options import (
    FILTERS,
)

Statuses = Annotated[
    list[str],
    typer.Option(
        "--status",
        metavar="STATUS",
        help="Only jobs with this status, or these: A,B. Repeatable.",
        rich_help_panel=FILTERS,
    ),
]


Tenant = Annotated[
    str | None,
    typer.Option(
        "--tenant", metavar="NAME", help="Only jobs of this tenant.", rich_help_panel=FILTERS
    ),
]


OlderThan = Annotated[
    float | None,
    typer.Option(
        "--older-than",
        metavar="TIME",
        parser=DurationRange(0, MOST_SECONDS),
        help="Only jobs older than this: 90s, 10m, 2h, 3d, 1w.",
        rich_help_panel=FILTERS,
    ),
]


def statuses_of(texts: Sequence[str]) -> frozenset[JobStatus]:
    """Return the statuses that `--status` names.

    Raises:
        UserError: a text is not a status.
    """
    there = [status.value for status in JobStatus]
    names = [name.strip().lower() for text in texts for name in text.split(",")]
    for name in names:
        if name not in there:
            hint = suggestion(name, there)
            raise UserError(f"--status: {name[:40]!r} is not a status of a job: {hint}")
    return frozenset(JobStatus(name) for name in names)


def filter_of(
    statuses: frozenset[JobStatus], tenant: str | None, older_than_s: float | None, now: float
) -> JobFilter:
    """Return the filter that the options describe. `now`: Unix time in seconds.

    Raises:
        UserError: the tenant is empty.
    """
    if tenant is not None and not tenant.strip():
        raise UserError("--tenant is empty: name a tenant, or leave the option out")
    return JobFilter(
        statuses=statuses,
        tenant=tenant or "",
        submitted_before=None if older_than_s is None else now - older_than_s,
    )
