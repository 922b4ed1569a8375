"""`handoff show`: show a job in brief, in full, or some of its handoffs in full."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.supervisor.cli.connection import Job, connect_and_find_job
from handoff_queue.supervisor.cli.display.terminal import get_stdout, write_as_json, write_json
from handoff_queue.supervisor.cli.errors import OK
from handoff_queue.supervisor.cli.options import AsJson

if TYPE_CHECKING:
    from handoff_queue.supervisor.client.client import Client

Full = Annotated[bool, typer.Option("--full", help="Print the plan, all handoffs and all results.")]
Handoffs = Annotated[
    list[str] | None,
    typer.Option("--handoff", metavar="ID", help="Print only this handoff, in full. Repeatable."),
]


def show(
    job: Job,
    full: Full = False,
    handoff: Handoffs = None,
    as_json: AsJson = False,
) -> int:
    """Show the status, the handoffs and the answer of a job.

    A long job shows its most important handoffs.

      handoff show j-k5tq2wbz7x3mhd4n --handoff check_0107.1
    """
    if full and handoff:
        raise UserError("--full and --handoff exclude each other: leave out one option")
    jobs, job_id = connect_and_find_job(job)
    if handoff:
        show_handoffs(jobs, job_id, handoff, as_json=as_json)
    elif full:
        show_all(jobs, job_id, as_json=as_json)
    else:
        show_outline(jobs, job_id, as_json=as_json)
    return OK


def show_all(jobs: Client, job_id: JobId, *, as_json: bool) -> None:
    """Print all data of a job."""
    from handoff_queue.supervisor.cli.display.job_report import print_everything
    from handoff_queue.supervisor.cli.display.remedies import describe_with_command
    from handoff_queue.supervisor.client.job_record import find_letters
    from handoff_queue.supervisor.client.job_result import read_report

    if as_json:
        write_json(jobs.result(job_id).to_json())
        return
    result = read_report(jobs.store, job_id, describe_with_command)
    print_everything(result, find_letters(jobs.store, job_id))


def show_outline(jobs: Client, job_id: JobId, *, as_json: bool) -> None:
    """Print a job in brief."""
    from handoff_queue.supervisor.cli.display.job_report import print_outline
    from handoff_queue.supervisor.cli.display.remedies import describe_with_command
    from handoff_queue.supervisor.client.job_outline import build_outline
    from handoff_queue.supervisor.client.job_record import find_letters

    if as_json:
        write_json(jobs.outline(job_id).to_json())
        return
    outline = build_outline(jobs.store, job_id, describe_with_command)
    print_outline(outline, find_letters(jobs.store, job_id))


def show_handoffs(
    jobs: Client, job_id: JobId, handoff_ids: Sequence[str], *, as_json: bool
) -> None:
    """Print these handoffs in full."""
    from handoff_queue.supervisor.cli.display.job_report import (
        format_readable,
        print_handoff,
        print_section,
    )

    reports = jobs.handoffs(job_id, list(map(HandoffId, handoff_ids)))
    if as_json:
        write_as_json([report.model_dump(mode="json") for report in reports])
        return
    to_yaml = partial(format_readable, columns=get_stdout().width)
    for report in reports:
        print_handoff(report.handoff, report.result)
        if report.context:
            print_section(f"context of {report.handoff['handoff_id']}", report.context)
        if report.turns:
            print_section(f"turns of {report.handoff['handoff_id']}", to_yaml(list(report.turns)))
