"""Whether there is such a job."""

from __future__ import annotations

from shared.ledger.jobs import JobStanding
from shared.ledger.ledger import Ledger
from shared.wire.errors import UnknownJob
from shared.wire.ids import JobId, is_job_id


def checked(job_id: JobId) -> JobId:
    """Raises: UnknownJob: it cannot be one's id."""
    if not isinstance(job_id, str) or not is_job_id(job_id):
        raise UnknownJob(
            f"{job_id!r:.82} is no job id: they look like j-0123456789ab (see `handoff list`)"
        )
    return job_id


def known(ledger: Ledger, job_id: JobId) -> JobStanding:
    """Raises: UnknownJob."""
    standing = next(iter(ledger.jobs.standings([checked(job_id)])), None)
    if standing is None:
        raise UnknownJob.named(job_id)
    return standing
