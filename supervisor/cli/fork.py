"""`handoff fork`: run a part of an ended job again as a new job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from handoff_queue.supervisor.cli.connection import Job, connect_and_find_job
from handoff_queue.supervisor.cli.display.terminal import print_message, write_line
from handoff_queue.supervisor.cli.errors import OK
from handoff_queue.supervisor.cli.options import BUDGET, IdempotencyKey, Model
from handoff_queue.supervisor.cli.retry import NewMaxTokens, NewMaxTurns

ForkFromStep = Annotated[
    str,
    typer.Option(
        "--from", metavar="STEP", help="Run this step again, and all steps that depend on it."
    ),
]
Task = Annotated[
    str | None, typer.Option("--task", metavar="TEXT", help="Another task for this step.")
]
Specialists = Annotated[
    Path | None,
    typer.Option(
        "--specialists",
        metavar="DIR",
        help="Specialist files in place of those of the workers.",
    ),
]
ForkMaxUsd = Annotated[
    float | None,
    typer.Option(
        "--max-usd",
        metavar="X",
        help="Cost of the fork in dollars, at most.",
        rich_help_panel=BUDGET,
    ),
]


def fork(
    job: Job,
    from_step: ForkFromStep,
    task: Task = None,
    model: Model = None,
    specialists: Specialists = None,
    max_usd: ForkMaxUsd = None,
    max_turns: NewMaxTurns = None,
    max_tokens: NewMaxTokens = None,
    idempotency_key: IdempotencyKey = None,
) -> int:
    """Run a part of an ended job again, as a new job.

    The new job has the plan of the old job, and keeps the results of all steps that do not depend
    on STEP. It pays only for the other steps. The old job stays as it is.

    A worker takes only the instructions, the output schema and lower limits from the files of
    --specialists. The model, the tools and the hosts are those of its own file. The command names
    the other fields of the files that differ. A fork of a fork keeps the files of the first fork,
    and the command names them. Files of --specialists replace those with the same name.

    handoff fork j-k5tq2wbz7x3mhd4n --from write --task "Write one page"

    `handoff compare j-k5tq2wbz7x3mhd4n j-m3vfa6yc2pkq7e5t` shows both jobs.
    """
    from handoff_queue.supervisor.cli.request_options import build_new_limits
    from handoff_queue.supervisor.client.forks import ForkOptions, find_files_of_fork

    limits = build_new_limits(max_turns, max_tokens, max_usd)
    jobs, job_id = connect_and_find_job(job)
    options = ForkOptions(task, model, limits, specialists)
    forked = jobs.fork(job_id, from_step, options, key=idempotency_key)
    write_line(forked)
    files = find_files_of_fork(jobs.store, forked)
    if files.kept:
        print_message(f"kept from {job_id}: the files of {', '.join(files.kept)}")
    for name, fields in files.not_taken.items():
        print_message(f"not taken from the file of {name}: {', '.join(fields)}")
    return OK
