"""`handoff show`: a job in brief, in full, or some of its handoffs in full."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.supervisor.cli.connection import Job, client_and_job
from handoff_queue.supervisor.cli.display.terminal import stdout, write_as_json, write_json
from handoff_queue.supervisor.cli.errors import OK
from handoff_queue.supervisor.cli.options import AsJson

if TYPE_CHECKING:
    from handoff_queue.supervisor.client.client import Client

Full = Annotated[
    bool, typer.Option("--full", help="The plan, and every handoff and every result in full.")
]
Brief = Annotated[bool, typer.Option("--brief", help="With --json: an object of the brief form.")]
Handoffs = Annotated[
    list[str] | None,
    typer.Option("--handoff", metavar="ID", help="Only this one, in full. May be repeated."),
]


def show(
    job: Job,
    as_json: AsJson = False,
    full: Full = False,
    brief: Brief = False,
    handoff: Handoffs = None,
) -> int:
    """A job in brief: its status, its handoffs that matter most, its notes and its answer.

    `--full` prints every handoff and every result, `--handoff` one handoff in full. `--json` prints
    all data of the job; with `--brief`, the data of the brief form.

      handoff show j-0123456789ab --handoff check_0107.1
    """
    if full + brief + bool(handoff) > 1:
        raise UserError("--full, --brief and --handoff exclude one another: use one of them")
    jobs, job_id = client_and_job(job)
    if handoff:
        show_handoffs(jobs, job_id, handoff, as_json=as_json)
    elif full or (as_json and not brief):
        show_all(jobs, job_id, as_json=as_json)
    else:
        show_what_matters(jobs, job_id, as_json=as_json)
    return OK


def show_all(jobs: Client, job_id: JobId, *, as_json: bool) -> None:
    """Print all data of a job."""
    from handoff_queue.supervisor.cli.display.job_report import print_everything
    from handoff_queue.supervisor.client.report import letters_about

    found = jobs.result(job_id)
    if as_json:
        write_json(found.to_json())
    else:
        print_everything(found, letters_about(jobs.store, job_id))


def show_what_matters(jobs: Client, job_id: JobId, *, as_json: bool) -> None:
    """Print a job in brief."""
    from handoff_queue.supervisor.cli.display.job_report import print_outline
    from handoff_queue.supervisor.client.report import letters_about

    found = jobs.outline(job_id)
    if as_json:
        write_json(found.to_json())
    else:
        print_outline(found, letters_about(jobs.store, job_id))


def show_handoffs(
    jobs: Client, job_id: JobId, handoff_ids: Sequence[str], *, as_json: bool
) -> None:
    """These in full."""
    from handoff_queue.supervisor.cli.display.job_report import print_handoff, readable, section

    found = jobs.handoffs(job_id, [HandoffId(one) for one in handoff_ids])
    if as_json:
        write_as_json([one.model_dump(mode="json") for one in found])
        return
    shown = partial(readable, columns=stdout().width)
    for one in found:
        print_handoff(one.handoff, one.result)
        if one.turns:
            section(f"turns of {one.handoff['handoff_id']}", shown(list(one.turns)))
