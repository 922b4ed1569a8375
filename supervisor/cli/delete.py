"""`handoff delete`: remove an ended job and everything that belongs to the job."""

from __future__ import annotations

from handoff_queue.supervisor.cli.connection import Job, client_and_job
from handoff_queue.supervisor.cli.display.terminal import write_line
from handoff_queue.supervisor.cli.errors import OK


def delete(job: Job) -> int:
    """Delete an ended job and all its data."""
    jobs, job_id = client_and_job(job)
    jobs.delete(job_id)
    write_line(f"{job_id} is deleted")
    return OK
