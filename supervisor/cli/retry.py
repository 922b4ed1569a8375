"""`handoff retry` and `handoff finish`: go on with an ended job."""

from __future__ import annotations

from typing import Annotated

import typer

from handoff_queue.shared.types.limits import MOST_COUNT
from handoff_queue.supervisor.cli.connection import Job, client_and_job
from handoff_queue.supervisor.cli.display.terminal import write_line
from handoff_queue.supervisor.cli.errors import OK
from handoff_queue.supervisor.cli.options import LIMITS

MaxJobTurns = Annotated[
    int | None,
    typer.Option(
        "--max-job-turns",
        metavar="N",
        min=1,
        max=MOST_COUNT,
        help="The new limit of turns of the whole job, with the turns that it has had.",
        rich_help_panel=LIMITS,
    ),
]


MaxUsd = Annotated[
    float | None,
    typer.Option(
        "--max-usd",
        metavar="X",
        min=1e-6,
        max=1e9,
        help="The new limit of what the whole job may cost.",
        rich_help_panel=LIMITS,
    ),
]


MaxTokens = Annotated[
    int | None,
    typer.Option(
        "--max-tokens",
        metavar="N",
        min=1,
        help="The new limit of tokens of the whole job.",
        rich_help_panel=LIMITS,
    ),
]


def retry(
    job: Job,
    from_step: Annotated[
        str | None, typer.Option("--from", metavar="STEP", help="Everything from this step on.")
    ] = None,
    max_job_turns: MaxJobTurns = None,
    max_usd: MaxUsd = None,
    max_tokens: MaxTokens = None,
) -> int:
    """Go on with an ended job: do again what did not succeed, or everything from a step on.

    What it has spent stays spent. One that its budget has ended needs a higher limit.
    """
    from handoff_queue.supervisor.cli.request_options import new_limits

    limits = new_limits(max_job_turns, max_tokens, max_usd)
    jobs, job_id = client_and_job(job)
    jobs.retry(job_id, from_step, limits)
    write_line(f"{job_id} goes on: `handoff watch {job_id}`")
    return OK


def finish(
    job: Job,
    max_job_turns: MaxJobTurns = None,
    max_usd: MaxUsd = None,
    max_tokens: MaxTokens = None,
) -> int:
    """Fill the gaps of an ended job: the steps that it did without, then what builds on them.

    What is whole stays as it is, and is not paid for again. This time nothing is left out for
    being late.
    """
    from handoff_queue.supervisor.cli.request_options import new_limits

    limits = new_limits(max_job_turns, max_tokens, max_usd)
    jobs, job_id = client_and_job(job)
    jobs.retry(job_id, None, limits, whole=True)
    write_line(f"{job_id} goes on: `handoff watch {job_id}`")
    return OK
