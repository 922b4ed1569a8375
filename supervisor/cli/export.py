"""`handoff export`: write a job, or all jobs of a tenant, to one file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from handoff_queue.shared.types.errors import UserError
from handoff_queue.supervisor.cli.connection import OptionalJob, connect_to_broker
from handoff_queue.supervisor.cli.display.atomic_output import STDOUT, write_lines, write_out
from handoff_queue.supervisor.cli.display.terminal import print_message, print_progress
from handoff_queue.supervisor.cli.errors import OK
from handoff_queue.supervisor.client.export import Export, extract_record
from handoff_queue.supervisor.client.job_lookup import find_job
from handoff_queue.supervisor.client.journal_follower import find_unverified_end
from handoff_queue.supervisor.text.sanitizing import escape_unsafe_in_json, replace_unsafe


def export(
    job: OptionalJob = None,
    tenant: Annotated[
        str | None,
        typer.Option("--tenant", metavar="NAME", help="All jobs and schedules of this tenant."),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The file; `-`: stdout.")
    ] = STDOUT,
    texts: Annotated[
        bool, typer.Option("--texts", help="Include the texts of the documents.")
    ] = False,
) -> int:
    """Write a job, or all jobs of a tenant, to one file.

    The file has the request, journal, plan, handoffs, results, verdicts, answer, usage and the
    list of documents. It has no key of this machine. The file of a tenant has one line for each
    job and each schedule, and a last line with the counts.

      handoff export j-k5tq2wbz7x3mhd4n --output job.json

      handoff export --tenant acme --output acme.jsonl
    """
    if job is None and tenant is None:
        raise UserError("a JOB is missing: name a job, or a tenant with --tenant")
    if job is not None and tenant is not None:
        raise UserError("a JOB and --tenant exclude each other: leave one out")
    jobs = connect_to_broker()
    if tenant is not None:
        lines = _Lines(jobs.export_tenant(tenant, texts=texts))
        write_lines(output, map(escape_unsafe_in_json, lines))
        if lines.are_empty:
            print_message(
                f"tenant {replace_unsafe(tenant)} has no jobs, schedules or notes: check the name"
            )
        subject = f"tenant {replace_unsafe(tenant)}"
    else:
        job_id = find_job(jobs.store, job or "")
        exported = jobs.export(job_id, texts=texts)
        write_out(output, escape_unsafe_in_json(exported.to_json()) + "\n")
        print_unverified_end(exported)
        subject = job_id
    if output != STDOUT:
        print_progress(f"{subject} is in {replace_unsafe(str(output))}")
    return OK


def print_unverified_end(export: Export) -> None:
    """Print a line if the job has ended, and this process does not trust the event of its end."""
    error = find_unverified_end(export.job, extract_record(export).journal)
    if error is not None:
        print_message(str(error))


class _Lines:
    """The lines of the export of a tenant, as they come."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self._count = 0

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            self._count += 1
            yield line

    @property
    def are_empty(self) -> bool:
        """Whether the tenant has nothing: there are only the first and the last line."""
        return self._count <= 2
