"""`handoff export`: write a job to one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from handoff_queue.supervisor.cli.connection import Job, client_and_job
from handoff_queue.supervisor.cli.display.atomic_output import STDOUT, write_out
from handoff_queue.supervisor.cli.display.terminal import print_progress
from handoff_queue.supervisor.cli.errors import OK
from handoff_queue.supervisor.text.sanitizing import json_for_all, plain


def export(
    job: Job,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The file; `-`: stdout.")
    ] = STDOUT,
    texts: Annotated[
        bool, typer.Option("--texts", help="Include the texts of the documents.")
    ] = False,
) -> int:
    """Write all data of a job to one JSON file.

    The file has the request, journal, plan, handoffs, results, verdicts, answer, usage and the
    list of documents. It has no key of this machine.

      handoff export j-0123456789ab --output job.json
    """
    jobs, job_id = client_and_job(job)
    write_out(output, json_for_all(jobs.export(job_id, texts=texts).to_json()) + "\n")
    if output != STDOUT:
        print_progress(f"{job_id} is in {plain(str(output))}")
    return OK
