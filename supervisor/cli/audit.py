"""`handoff audit`: print the actions on the fleet, or on one job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from handoff_queue.supervisor.cli.connection import connect_and_find_job, connect_to_broker
from handoff_queue.supervisor.cli.display.terminal import (
    format_clock,
    print_message,
    shorten,
    write_as_json,
    write_line,
)
from handoff_queue.supervisor.cli.errors import OK
from handoff_queue.supervisor.cli.options import AsJson

if TYPE_CHECKING:
    from handoff_queue.shared.types.audit import Actor, AuditEntry


def audit(
    job: Annotated[
        str | None,
        typer.Argument(metavar="JOB", help="Print the actions on this job. Default: on the fleet."),
    ] = None,
    count: Annotated[
        int, typer.Option("-n", metavar="N", min=1, max=100_000, help="Number of actions.")
    ] = 50,
    as_json: AsJson = False,
) -> int:
    """Print the actions of users on the fleet, or on one job.

    The newest action is last. Actions on the fleet are about pauses, dead letters, tokens,
    schedules and notes of the memory, or delete jobs and tenants. Refused commands and
    messages are there, too, which no user caused.

    handoff audit j-k5tq2wbz7x3mhd4n
    """
    if job is None:
        entries = connect_to_broker().audit(count=count)
    else:
        jobs, job_id = connect_and_find_job(job)
        entries = jobs.audit(job_id, count)
    if as_json:
        write_as_json([entry.model_dump(mode="json") for entry in entries])
        return OK
    for entry in entries:
        write_line(_format_entry(entry))
    if not entries:
        print_message("there are no actions of users yet")
    return OK


def _format_entry(entry: AuditEntry) -> str:
    detail = ""
    if entry.detail:
        detail = f": {shorten(entry.detail, 200)}"
    action_text = f"{entry.action.replace('_', ' ')} {shorten(entry.subject, 64)}{detail}"
    return f"{format_clock(entry.at)}  {_describe_actor(entry.actor)}  {action_text}"


def _describe_actor(actor: Actor | None) -> str:
    """Return the actor in words, safe for a terminal."""
    if actor is None:
        return "unnamed"
    text = shorten(actor.name, 60)
    if actor.token:
        text += f" (token {shorten(actor.token, 20)})"
    text += f" via {actor.via}"
    if actor.address:
        text += f" from {shorten(actor.address, 60)}"
    return text
