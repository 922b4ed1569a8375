"""Each filter of the list of jobs is on each surface: `handoff list`, the HTTP API, the console."""

from __future__ import annotations

import inspect
from dataclasses import fields

from handoff_queue.shared.store.job_filter import JobFilter
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.supervisor.cli.commands import load_command
from handoff_queue.supervisor.cli.options import build_filter
from handoff_queue.supervisor.serve.console import job_list_routes
from handoff_queue.supervisor.serve.job_routes import list_jobs

FILTERS = {field.name for field in fields(JobFilter)}
CLI_NAMES = {
    "status": "statuses",
    "older_than": "submitted_before",
    "newer_than": "submitted_after",
    "min_usd": "min_microusd",
}
"""Options of `handoff list` that are not named as their filter."""
CONSOLE_NAMES = {"age": "submitted_after", "min_usd": "min_microusd"}
NOT_IN_THE_CONSOLE = {"submitted_before"}
"""The console has the ages of new jobs only. Its pages lead to old jobs."""


def test_the_command_has_each_filter() -> None:
    options = {parameter.opts[0] for parameter in load_command("list").params}
    names = {option.lstrip("-").replace("-", "_") for option in options}

    assert {CLI_NAMES.get(name, name) for name in names} >= FILTERS


def test_the_http_api_has_each_filter() -> None:
    names = {"statuses" if name == "status" else name for name in _parameters()}

    assert names >= FILTERS


def test_the_console_has_each_filter() -> None:
    names = {CONSOLE_NAMES.get(name, name) for name in job_list_routes.NAMES}

    assert names | {"statuses"} == FILTERS - NOT_IN_THE_CONSOLE


def test_the_options_set_each_filter() -> None:
    where = build_filter(
        frozenset({JobStatus.QUEUED}),
        1_000.0,
        older_than_s=10,
        newer_than_s=100,
        min_microusd=500_000,
        tenant="acme",
        specialist="writer",
        failed_specialist="legal",
        text="tower",
        mode="team",
        priority="batch",
    )

    assert where == JobFilter(
        statuses=frozenset({JobStatus.QUEUED}),
        tenant="acme",
        submitted_before=990.0,
        submitted_after=900.0,
        mode="team",
        priority="batch",
        text="tower",
        min_microusd=500_000,
        specialist="writer",
        failed_specialist="legal",
    )


def _parameters() -> set[str]:
    return set(inspect.signature(list_jobs).parameters)
