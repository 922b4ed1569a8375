"""Delete ended jobs."""

from __future__ import annotations

from handoff_queue.shared.store.job_info import JobInfo
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client.job_lookup import read_job_info


def delete_job(store: Store, job_id: JobId) -> None:
    """Delete a job and its child jobs, the lowest first, so that a crash leaves no orphans.

    A job that does not exist is ignored.

    Raises:
        UserError: the job or one of its child jobs has not ended. That job is not removed.
    """
    info = read_job_info(store, job_id)
    if info is None:
        return
    check_ended(info)
    for child in info.children:
        delete_job(store, child)
    store.jobs.delete(job_id)


def check_ended(info: JobInfo) -> None:
    """Raise UserError if the job has not ended, and so cannot be deleted."""
    if not info.status.has_ended:
        remedy = "cancel it first"
        if info.parent:
            remedy = f"it stops when {info.parent} stops; try again then"
        raise UserError(f"{info.job_id} has not ended yet: {remedy}")
