"""Jobs with many rows, for tests of their reports."""

from __future__ import annotations

from pathlib import Path

from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.client.client import Request
from tests.supervisor.shell import Shell
from tests.supervisor.workflows.writing import A_ROW, UNREVIEWED, rows, workflow

LIMITS = JobLimits(max_turns=10_000)


def begun(shell: Shell, folder: Path, count: int, steps: str = A_ROW) -> JobId:
    """Return a job with this number of rows, all issued."""
    asked = workflow(folder, steps, UNREVIEWED)
    job_id = shell.jobs.submit(
        Request("Look at them all.", workflow=asked, items=rows(count), limits=LIMITS)
    )
    while len(shell.open(job_id)) < count:
        shell.advance(job_id)
    return job_id
