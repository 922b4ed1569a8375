"""Jobs with many rows, for tests of outlines."""

from __future__ import annotations

from pathlib import Path

from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.client.request import Request
from tests.supervisor.shell import Shell
from tests.supervisor.workflows.workflow_files import (
    ROW_STEP,
    UNREVIEWED,
    make_workflow,
    numbered_rows,
)

LIMITS = JobLimits(max_turns=10_000)


def submit_rows(shell: Shell, folder: Path, count: int, steps: str = ROW_STEP) -> JobId:
    """Return a job with `count` rows. The handoffs of all rows are issued."""
    definition = make_workflow(folder, steps, UNREVIEWED)
    job_id = shell.jobs.submit(
        Request("Look at them all.", workflow=definition, items=numbered_rows(count), limits=LIMITS)
    )
    while len(shell.open(job_id)) < count:
        shell.advance(job_id)
    return job_id
