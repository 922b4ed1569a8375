"""`--output rows.jsonl` and `--output rows.csv`: the results of repeated steps as a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.cli.display.atomic_output import write_out
from handoff_queue.supervisor.cli.display.terminal import OutputFailed, print_message
from handoff_queue.supervisor.client.rows import Row, rows_as_text


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
        write_out(target, rows_as_text(rows, target))
    except OSError as error:
        raise OutputFailed(f"cannot write {target}: {error.strerror}") from error
    done = 0
    for row in rows:
        done += row.status not in ("waiting", "running")
    print_message(f"{done} of {len(rows)} rows of {job_id} are done; {target} has all of them")
