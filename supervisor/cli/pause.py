"""`handoff pause` and `handoff unpause`: stop and start an agent on all machines."""

from __future__ import annotations

from typing import Annotated

import typer

from handoff_queue.shared.text.word_forms import format_count
from handoff_queue.supervisor.cli.connection import connect_to_broker
from handoff_queue.supervisor.cli.display.terminal import (
    print_message,
    shorten,
    write_line,
)
from handoff_queue.supervisor.cli.errors import OK

Agent = Annotated[
    str,
    typer.Argument(
        metavar="AGENT",
        help="A specialist, or a role: router, planner, replanner, judge, assessor, synthesizer.",
    ),
]


def pause(
    agent: Agent,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Why. Waiting jobs show this text.")
    ] = "",
) -> int:
    """Pause an agent on all machines.

    Workers claim no new handoff of the agent. A running handoff stops after its turn. Jobs that
    need the agent wait until `handoff unpause`, or until their time is over.

      handoff pause researcher --reason "cites a site that is down"
    """
    connect_to_broker().pause(agent, reason)
    write_line(f"{agent} is paused: `handoff unpause {agent}` ends the pause")
    return OK


def unpause(agent: Agent) -> int:
    """Unpause an agent."""
    released_count = connect_to_broker().unpause(agent)
    if released_count is None:
        print_message(f"{shorten(agent, 64)} was not paused")
    else:
        waited = ""
        if released_count:
            waited = f" with {format_count(released_count, 'handoff')} that waited"
        write_line(f"{agent} is unpaused{waited}")
    return OK
