"""`handoff show`: a job taken apart; of one with more handoffs than anybody reads, what matters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from shared.wire.errors import UserError
from shared.wire.ids import HandoffId, JobId
from supervisor.cli.errors import OK
from supervisor.cli.jobs import Job, client_and_job
from supervisor.cli.options import AsJson
from supervisor.cli.terminal import stdout, write_as_json, write_json

if TYPE_CHECKING:
    from supervisor.client import Client

All = Annotated[
    bool,
    typer.Option("--all", help="Every handoff and every result in full, however many there are."),
]
Brief = Annotated[
    bool, typer.Option("--brief", help="What matters, however few handoffs there are.")
]
Handoffs = Annotated[
    list[str] | None,
    typer.Option("--handoff", metavar="ID", help="Only this one, in full. May be repeated."),
]


def show(
    job: Job,
    as_json: AsJson = False,
    whole: All = False,
    brief: Brief = False,
    handoff: Handoffs = None,
) -> int:
    """A job taken apart: plan, handoffs and results, in full where they are few, else what matters.

    Of a job with more than 20 handoffs: how they stand, and those that failed, were dropped, run or came last. `--all` shows all of them,
    `--handoff` one in full. `--json` has everything, unless `--brief` is there, too.

      handoff show j-0123456789ab --handoff check_0107.1
    """
    if whole + brief + bool(handoff) > 1:
        raise UserError("--all, --brief and --handoff are three answers: ask for one of them")
    jobs, job_id = client_and_job(job)
    if handoff:
        show_handoffs(jobs, job_id, handoff, as_json=as_json)
    elif brief or not (whole or as_json):
        show_what_matters(jobs, job_id, always=brief, as_json=as_json)
    else:
        _show_all(jobs, job_id, as_json=as_json)
    return OK


def _show_all(jobs: Client, job_id: JobId, *, as_json: bool) -> None:
    from supervisor.cli.showing import print_everything
    from supervisor.record import letters_about

    found = jobs.result(job_id)
    if as_json:
        write_json(found.to_json())
    else:
        print_everything(found, letters_about(jobs.ledger, job_id))


def show_what_matters(jobs: Client, job_id: JobId, *, always: bool, as_json: bool) -> None:
    """Of a job of few handoffs all there is, unless `always`."""
    from supervisor.known import checked
    from supervisor.outline import is_long, outline_of
    from supervisor.record import letters_about

    glance = jobs.ledger.glances.of(checked(job_id))
    if not always and not is_long(jobs.ledger, glance):
        _show_all(jobs, job_id, as_json=as_json)
        return
    found = outline_of(jobs.ledger, glance)
    if as_json:
        write_json(found.to_json())
    else:
        from supervisor.cli.outlining import print_outline

        print_outline(found, letters_about(jobs.ledger, job_id))


def show_handoffs(
    jobs: Client, job_id: JobId, handoff_ids: Sequence[str], *, as_json: bool
) -> None:
    """These in full."""
    from supervisor.cli.showing import print_handoff, readable, section

    found = jobs.handoffs(job_id, [HandoffId(one) for one in handoff_ids])
    if as_json:
        write_as_json([one.model_dump(mode="json") for one in found])
        return
    shown = partial(readable, columns=stdout().width)
    for one in found:
        print_handoff(one.handoff, one.result)
        if one.turns:
            section(f"turns of {one.handoff['handoff_id']}", shown(list(one.turns)))
