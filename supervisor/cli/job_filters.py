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
    known = [status.value for status in JobStatus]
    statuses: set[JobStatus] = set()
    for text in texts:
        for part in text.split(","):
            name = part.strip().lower()
            if name not in known:
                hint = suggestion(name, known)
                raise UserError(f"--status: {name[:40]!r} is not a job status: {hint}")
            statuses.add(JobStatus(name))
    return frozenset(statuses)


def filter_of(
    statuses: frozenset[JobStatus], tenant: str | None, older_than_s: float | None, now: float
) -> JobFilter:
    """Return the filter that the options describe.

    Args:
        older_than_s: least seconds since the jobs were submitted.
        now: Unix time in seconds.

    Raises:
        UserError: the tenant is empty.
    """
    if tenant is not None and not tenant.strip():
        raise UserError("--tenant is empty: name a tenant, or leave the option out")
    submitted_before = None
    if older_than_s is not None:
        submitted_before = now - older_than_s
    return JobFilter(statuses=statuses, tenant=tenant or "", submitted_before=submitted_before)
