"""Deletion of ended jobs, and of all data of a tenant.

Each step of a tenant's deletion may be repeated, and a repeated deletion does the steps that are
left. Tokens and schedules go first, so that they start no further job. Then the open jobs are
cancelled, and each job is deleted once it has ended. The documents of a job are recorded before
the job is deleted, and documents that no other job holds go last.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from itertools import islice

from handoff_queue.shared.store.job_filter import JobFilter
from handoff_queue.shared.store.job_info import JobInfo
from handoff_queue.shared.store.schedules import MAX_CHANGE_TRIES
from handoff_queue.shared.store.spending_history import DAY_S
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import UnknownJob, UnknownSchedule, UserError
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.message import Message
from handoff_queue.supervisor.client.job_lookup import read_job_info
from handoff_queue.supervisor.client.job_record import find_job_of_letter

JOBS_AT_ONCE = 100
LOOK_AGAIN_S = 0.2
"""Seconds between two checks of the jobs that were cancelled and have not ended."""
OPEN = frozenset(status for status in JobStatus if not status.has_ended)


class TenantDeletion(Message):
    """The effect of a deletion of a tenant."""

    tenant: str
    is_complete: bool
    """False: jobs have not ended yet. Repeat the deletion."""
    open_jobs: int
    """Jobs that were cancelled and have not ended."""
    jobs: int
    """Jobs that were deleted, without their child jobs."""
    schedules: int
    tokens: int
    """Tokens of the HTTP API that were revoked."""
    letters: int
    """Dead letters that were dropped."""
    notes: int
    """Notes of the memory."""
    documents: int
    """Texts of documents that were deleted."""
    kept_documents: int
    """Texts of documents that other jobs hold, or may hold."""


def delete_tenant(
    store: Store, cancel: Callable[[JobId], bool], tenant: str, wait_s: float
) -> TenantDeletion:
    """Delete everything of a tenant. See `Client.delete_tenant`.

    Args:
        cancel: cancels a job.
        wait_s: seconds to wait for the end of cancelled jobs.
    """
    tokens = _revoke_tokens(store, tenant)
    schedules = _remove_schedules(store, tenant)
    letters = _drop_letters(store, tenant)
    deleted_count, left = _delete_jobs(store, cancel, tenant, wait_s)
    documents = kept_documents = notes = 0
    if not left:
        documents, kept_documents = _delete_documents(store, tenant)
        today = int(store.connection.now()) // DAY_S
        store.tenants.forget_statistics(tenant, today)
        notes = store.notes.forget(tenant)
        store.tenants.end_deletion(tenant)
    return TenantDeletion(
        tenant=tenant,
        is_complete=not left,
        open_jobs=left,
        jobs=deleted_count,
        schedules=schedules,
        tokens=tokens,
        letters=letters,
        notes=notes,
        documents=documents,
        kept_documents=kept_documents,
    )


def _delete_jobs(
    store: Store, cancel: Callable[[JobId], bool], tenant: str, wait_s: float
) -> tuple[int, int]:
    """Cancel and delete the jobs of a tenant. Return the numbers of deleted and of open jobs."""
    deleted_count = 0
    cancelled: set[JobId] = set()
    until = time.monotonic() + wait_s
    while True:
        for job_id in list(store.jobs.iterate_matching(JobFilter(statuses=OPEN, tenant=tenant))):
            if job_id not in cancelled:
                with suppress(UnknownJob):
                    cancel(job_id)
                cancelled.add(job_id)
        deleted_count += _delete_ended(store, tenant)
        left = sum(store.jobs.count_by_status(JobFilter(tenant=tenant)).values())
        if not left or time.monotonic() > until:
            return deleted_count, left
        time.sleep(LOOK_AGAIN_S)


def _revoke_tokens(store: Store, tenant: str) -> int:
    """Revoke the tokens of a tenant. Return their number."""
    token_ids = [token.id for token in store.api_tokens.list_all() if token.tenant == tenant]
    return sum(store.api_tokens.revoke(token_id) for token_id in token_ids)


def _remove_schedules(store: Store, tenant: str) -> int:
    """Remove the schedules of a tenant. A supervisor may change a schedule at the same time."""
    removed = 0
    for schedule in store.schedules.list_all(tenant):
        for _ in range(MAX_CHANGE_TRIES):
            stored_schedule = store.schedules.find(tenant, schedule.name)
            if stored_schedule is None or store.schedules.remove(stored_schedule):
                removed += stored_schedule is not None
                break
        else:
            raise UnknownSchedule(
                f"the schedule {schedule.name} changes all the time: repeat the deletion"
            )
    return removed


def _drop_letters(store: Store, tenant: str) -> int:
    """Drop the dead letters that are messages of the tenant's jobs."""
    dropped_count = 0
    for letter in store.dead_letters.list_newest():
        job_id = find_job_of_letter(letter)
        if job_id is not None and store.jobs.find_owner(job_id) == tenant:
            dropped_count += store.dead_letters.drop(letter)
    return dropped_count


def _delete_ended(store: Store, tenant: str) -> int:
    """Delete the jobs of a tenant that have ended. Return their number."""
    ended_statuses = frozenset(status for status in JobStatus if status.has_ended)
    job_ids = store.jobs.iterate_matching(JobFilter(statuses=ended_statuses, tenant=tenant))
    deleted_count = 0
    while part := list(islice(job_ids, JOBS_AT_ONCE)):
        documents = store.tenants.find_documents(part)
        known = [name for name, problem in documents.items() if not problem]
        store.tenants.record_documents(tenant, known)
        for job_id in part:
            with suppress(UserError):  # a child job of a retried job may be open again
                delete_job(store, job_id)
                deleted_count += 1
    return deleted_count


def _delete_documents(store: Store, tenant: str) -> tuple[int, int]:
    """Delete the recorded documents that no job holds. Return the numbers of deleted and of kept
    documents.
    """
    noted = store.tenants.read_noted_documents(tenant)
    if not noted:
        return 0, 0
    since_ms = store.tenants.begin_look()
    unneeded = set(noted)
    job_ids = store.jobs.iterate_matching(JobFilter())
    while unneeded:
        part = list(islice(job_ids, JOBS_AT_ONCE))
        if not part:
            break
        needed_documents = store.tenants.find_documents(part)
        if any(needed_documents.values()):  # a job with unknown documents may hold every document
            return 0, len(noted)
        unneeded -= set(needed_documents)
    deleted_count = store.tenants.drop_documents(sorted(unneeded), since_ms)
    return deleted_count, len(noted) - len(unneeded)


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
