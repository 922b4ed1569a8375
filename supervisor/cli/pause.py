"""`handoff pause` and `handoff resume`: the kill switch of a role."""

from __future__ import annotations

from typing import Annotated

import typer

from handoff_queue.supervisor.cli.connection import client_of_broker
from handoff_queue.supervisor.cli.display.terminal import figures, say, short, write_line
from handoff_queue.supervisor.cli.errors import OK

Role = Annotated[
    str,
    typer.Argument(
        metavar="ROLE", help="A specialist, or router, planner, judge, assessor, synthesizer."
    ),
]


def pause(
    role: Role,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Why; shown to all who wait for it.")
    ] = "",
) -> int:
    """Stop a role on every machine, until `handoff resume`: the kill switch.

    It gets no new work. What it is at work on ends its turn and waits, and so do the jobs that
    need it, until their time is over. With `planner` paused, no job gets a plan.

      handoff pause researcher --reason "cites a site that is down"
    """
    client_of_broker().pause(role, reason)
    write_line(f"{role} is paused: `handoff resume {role}` lets it go on")
    return OK


def resume(role: Role) -> int:
    """Let a paused role go on with what waits for it."""
    held = client_of_broker().resume(role)
    if held is None:
        say(f"{short(role, 64)} was not paused")
    else:
        write_line(f"{role} goes on" + (f", {figures(held, 'handoff')} with it" if held else ""))
    return OK
