"""`handoff pause` and `handoff unpause`: stop and start a role on all machines."""

from __future__ import annotations

from typing import Annotated

import typer

from handoff_queue.supervisor.cli.connection import client_of_broker
from handoff_queue.supervisor.cli.display.terminal import (
    count_text,
    print_message,
    shorten,
    write_line,
)
from handoff_queue.supervisor.cli.errors import OK

Role = Annotated[
    str,
    typer.Argument(
        metavar="ROLE",
        help="A specialist, or a role: router, planner, replanner, judge, assessor, synthesizer.",
    ),
]


def pause(
    role: Role,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Why. Waiting jobs show this text.")
    ] = "",
) -> int:
    """Pause a specialist or a role on all machines.

    Workers claim no new handoff of the role. A running handoff stops after its turn. Jobs that
    need the role wait until `handoff unpause`, or until their time is over.

      handoff pause researcher --reason "cites a site that is down"
    """
    client_of_broker().pause(role, reason)
    write_line(f"{role} is paused: `handoff unpause {role}` ends the pause")
    return OK


def unpause(role: Role) -> int:
    """Unpause a specialist or a role."""
    released_count = client_of_broker().unpause(role)
    if released_count is None:
        print_message(f"{shorten(role, 64)} was not paused")
    else:
        waited = ""
        if released_count:
            waited = f" with {count_text(released_count, 'handoff')} that waited"
        write_line(f"{role} is unpaused{waited}")
    return OK
