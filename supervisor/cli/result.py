"""`handoff result`: print the answer of a job, its sources and its usage."""

from __future__ import annotations

from typing import Annotated

import typer

from handoff_queue.shared.text.times import DurationRange, in_units
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.limits import MAX_SECONDS
from handoff_queue.supervisor.cli.connection import Job, connect_and_find_job
from handoff_queue.supervisor.cli.display.terminal import print_message
from handoff_queue.supervisor.cli.errors import get_exit_code
from handoff_queue.supervisor.cli.options import AllowPartial, AsJson, RowsFile


def result(
    job: Job,
    as_json: AsJson = False,
    wait: Annotated[
        float,
        typer.Option(
            metavar="TIME",
            parser=DurationRange(0, MAX_SECONDS),
            show_default=in_units(0),
            help="How long to wait for the end of the job: 90s, 10m.",
        ),
    ] = 0.0,
    output: RowsFile = None,
    allow_partial: AllowPartial = False,
) -> int:
    """Print the answer of a job, its sources and its usage.

    Exit code 4: the job has not ended. Exit code 5: the answer is partial.

    With `--output`, a workflow with `for_each` writes one row per item to a file. While the
    job runs, the file has the rows so far.

      handoff result j-k5tq2wbz7x3mhd4n --output rows.csv
    """
    from handoff_queue.supervisor.cli.follow_job import print_outcome

    if output is not None and as_json:
        raise UserError("--output writes the rows to a file and prints no JSON: leave out --json")
    jobs, job_id = connect_and_find_job(job)
    if output is not None:
        from handoff_queue.supervisor.cli.display.row_table import write_rows

        status = jobs.wait(job_id, wait)
        write_rows(job_id, jobs.rows(job_id), output)
        return get_exit_code(status, allow_partial=allow_partial)
    job_result = jobs.result(job_id, wait_s=wait)
    if as_json or job_result.status.has_ended:
        return print_outcome(job_result, as_json=as_json, allow_partial=allow_partial)
    from handoff_queue.supervisor.cli.display.remedies import describe_with_command
    from handoff_queue.supervisor.client.waiting_reasons import find_open_questions

    waits_for = list(map(describe_with_command, find_open_questions(jobs.info(job_id))))
    if waits_for:
        print_message(f"{job_id} is {job_result.status.value}: {'; '.join(waits_for)}")
    else:
        print_message(
            f"{job_id} is {job_result.status.value}: `--wait 10m` waits for its end,"
            f" `handoff watch {job_id}` shows its progress"
        )
    return get_exit_code(job_result.status)
