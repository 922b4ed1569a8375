"""The table of a job's rows: `--output rows.jsonl` and `--output rows.csv`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.cli.display.atomic_output import write_out
from handoff_queue.supervisor.cli.display.file_errors import describe_file_problem
from handoff_queue.supervisor.cli.display.terminal import OutputFailed, print_message
from handoff_queue.supervisor.client.repeated_step_rows import Row, format_rows


def write_rows(job_id: JobId, rows: Sequence[Row], target: Path) -> None:
    """Write the rows of a job, and print how many rows are done.

    Raises:
        UserError: the job has no plan yet, or its plan has no for_each step.
        OutputFailed: the file cannot be written, or it is a pipe without a reader.
    """
    if not rows:
        raise UserError(
            f"{job_id} has no rows: its plan has no for_each step, or there is no plan yet"
        )
    try:
        write_out(target, format_rows(rows, target))
    except OSError as error:
        raise OutputFailed(f"cannot write {describe_file_problem(error)}") from error
    done_count = sum(row.status not in ("waiting", "running") for row in rows)
    print_message(f"{done_count} of {len(rows)} rows of {job_id} are done; {target} has all rows")
