"""Find the job of an id, or of the beginning of an id."""

from __future__ import annotations

from collections.abc import Sequence

from handoff_queue.shared.store.job_info import JobInfo
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import UnknownJob, UnreadableJob, UserError
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.ids import JobId, is_job_id, is_job_id_prefix

MAX_CANDIDATES = 5
"""Most jobs that the error about an ambiguous prefix names."""


def check_job_id(job_id: JobId) -> JobId:
    """Return the id if it has the form of a job id.

    Raises:
        UnknownJob: the text is not a job id.
    """
    if not isinstance(job_id, str) or not is_job_id(job_id):
        raise _build_invalid_id_error(job_id)
    return job_id


def get_job_info(store: Store, job_id: JobId) -> JobInfo:
    """Return the information about a job.

    Raises:
        UnknownJob: no job has this id.
        UnreadableJob: the record of the job cannot be read.
    """
    info = find_job_info(store, job_id)
    if info.status is JobStatus.UNREADABLE:
        raise UnreadableJob.for_job(job_id)
    return info


def find_job_info(store: Store, job_id: JobId) -> JobInfo:
    """Return the information about a job, also if the record of the job cannot be read.

    Raises:
        UnknownJob: no job has this id.
    """
    info = read_job_info(store, check_job_id(job_id))
    if info is None:
        raise UnknownJob.for_job(job_id)
    return info


def read_job_info(store: Store, job_id: JobId) -> JobInfo | None:
    """Return the information about a job, or None if no job has this id."""
    return next(iter(store.jobs.read([job_id])), None)


def find_job(store: Store, text: str) -> JobId:
    """Return the id of the only job whose id begins with this text.

    A complete id is returned without a call to Redis, also if there is no such job.

    Raises:
        UnknownJob: no job's id begins with the text.
        UserError: several ids begin with the text.
    """
    if is_job_id(text):
        return JobId(text)
    if not is_job_id_prefix(text):
        raise _build_invalid_id_error(text)
    return get_only_match(text, store.jobs.find_by_prefix(text, MAX_CANDIDATES + 1))


def get_only_match(prefix: str, job_ids: Sequence[JobId]) -> JobId:
    """Return the only job with an id that begins with `prefix`.

    Raises:
        UnknownJob: no id begins with `prefix`.
        UserError: several ids do; the message names up to `MAX_CANDIDATES`.
    """
    if not job_ids:
        raise UnknownJob(f"no job has an id that begins with {prefix}", command="handoff list")
    if len(job_ids) > 1:
        more = ""
        if len(job_ids) > MAX_CANDIDATES:
            more = " and others"
        candidates = ", ".join(job_ids[:MAX_CANDIDATES])
        raise UserError(
            f"{prefix} is the beginning of several job ids ({candidates}{more}): type more of"
            " the id"
        )
    return job_ids[0]


def _build_invalid_id_error(text: object) -> UnknownJob:
    return UnknownJob(
        f"{text!r:.82} is not a job id, such as j-k5tq2wbz7x3mhd4n", command="handoff list"
    )
