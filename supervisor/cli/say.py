"""`handoff say`: send a message to the agents of a running job."""

from __future__ import annotations

from typing import Annotated

import typer

from handoff_queue.supervisor.cli.connection import Job, connect_and_find_job
from handoff_queue.supervisor.cli.display.terminal import print_message, write_line
from handoff_queue.supervisor.cli.errors import OK


def say(
    job: Job,
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="Your message: up to 10,000 characters.")
    ],
    step: Annotated[
        str | None,
        typer.Option("--step", metavar="STEP", help="Only for the agents of this step."),
    ] = None,
) -> int:
    """Send a message to the agents of a running job.

    An agent that runs takes the message once, before its next turn. An agent that starts later
    has the message in its task. `handoff show JOB` says at which turn an agent took it.

    handoff say j-k5tq2wbz7x3mhd4n "Ignore prices before 2020." --step read
    """
    jobs, job_id = connect_and_find_job(job)
    receipt = jobs.say(job_id, text, step)
    if receipt.is_redacted:
        print_message("a part of the message looked like a credential, and became [redacted]")
    delivery = "the next agent that starts has it in its task"
    if receipt.running:
        delivery = f"{', '.join(receipt.running):.300} will take it before the next turn"
    write_line(f"{job_id} has your message: {delivery}")
    return OK
