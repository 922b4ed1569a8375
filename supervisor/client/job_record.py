"""The record of a job: all data of the job in the store, with its dead letters."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel

from handoff_queue.shared.store.dead_letters import DeadLetter, parse_handoff
from handoff_queue.shared.store.handoff_info import HandoffInfo
from handoff_queue.shared.store.job_info import JobInfo
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import (
    UnknownJob,
    UnreadableJob,
    UnusableSubmission,
)
from handoff_queue.shared.types.events import (
    ApprovalAsked,
    Event,
    HandoffFinished,
    HandoffIssued,
    JobStatus,
    JobSubmitted,
    RecordedEvent,
)
from handoff_queue.shared.types.handoff import BlobRef
from handoff_queue.shared.types.ids import (
    HandoffId,
    JobId,
    is_job_id,
)
from handoff_queue.supervisor.client.job_lookup import read_job_info
from handoff_queue.supervisor.client.waiting_reasons import (
    Describe,
    read_waiting_reasons,
)

EventType = TypeVar("EventType", bound=Event)


@dataclass(frozen=True, slots=True)
class JobRecord:
    """All data of a job in the store, read at about the time `at`."""

    at: float
    """Unix time in seconds, by Redis's clock."""
    job: JobInfo
    journal: tuple[RecordedEvent, ...]
    handoffs: Mapping[HandoffId, HandoffInfo]
    payloads: Mapping[str, str]
    """All payloads of the journal, by digest."""
    waits: tuple[str, ...]
    """One line for each process or person that the job waits for."""


def build_record(store: Store, job_id: JobId, describe: Describe = str) -> JobRecord:
    """Read the journal of a job and all its payloads.

    Args:
        describe: makes a line of a reason to wait.

    Raises:
        UnknownJob: there is no such job.
        UnreadableJob, UnusableSubmission: another program has changed the job, or it is older than
            the keys of the installation.
        StoreError: a payload is gone.
    """
    journal = tuple(store.journal.read(job_id))
    info = read_job_info(store, job_id)
    if not journal or info is None:
        raise UnknownJob.for_job(job_id)
    if info.status is JobStatus.UNREADABLE:
        raise UnreadableJob.for_job(job_id)
    if not isinstance(journal[0].event, JobSubmitted):
        raise UnusableSubmission.for_job(job_id)
    handoff_ids = [event.handoff_id for event in select_events(journal, HandoffIssued)]
    finished = select_events(journal, HandoffFinished)
    finished_ids = {event.handoff_id for event in finished}
    open_handoffs = [handoff_id for handoff_id in handoff_ids if handoff_id not in finished_ids]
    of_workers = {event.result.digest for event in finished}
    for approval_asked in select_events(journal, ApprovalAsked):
        if approval_asked.call is not None:
            of_workers |= {blob.digest for blob in iterate_refs(approval_asked)}
    other_digests = _list_digests_except(of_workers, journal)
    waits = read_waiting_reasons(store, info, open_handoffs)
    return JobRecord(
        at=store.connection.now(),
        job=info,
        journal=journal,
        handoffs=store.jobs.read_handoffs(job_id, handoff_ids),
        payloads=store.payloads.get(job_id, other_digests, results=list(of_workers)),
        waits=tuple(map(describe, waits)),
    )


def _list_digests_except(others: Collection[str], journal: Sequence[RecordedEvent]) -> list[str]:
    """Return the digests of all payloads of a journal, without the given ones."""
    digests: list[str] = []
    for recorded in journal:
        digests += [ref.digest for ref in iterate_refs(recorded.event) if ref.digest not in others]
        if isinstance(recorded.event, HandoffIssued):
            digests.append(recorded.event.specialist)
    return digests


def find_letters(store: Store, job_id: JobId) -> tuple[DeadLetter, ...]:
    """Return the dead letters that contain the id of a job, the newest first."""
    letters: list[DeadLetter] = []
    for letter in store.dead_letters.list_newest():
        if job_id in letter.body:
            letters.append(letter)
    return tuple(letters)


def is_letter_of(letter: DeadLetter, job_id: JobId) -> bool:
    """Return whether a dead letter is a message of this job.

    A message of another tenant may contain the id of this job in its text.
    """
    return find_job_of_letter(letter) == job_id


def find_job_of_letter(letter: DeadLetter) -> JobId | None:
    """Return the job whose message a dead letter is; None if the message has no job."""
    if is_job_id(letter.body):
        return JobId(letter.body)
    job_and_handoff = parse_handoff(letter.body)
    return job_and_handoff[0] if job_and_handoff else None


def iterate_refs(value: object) -> Iterable[BlobRef]:
    """Yield every payload reference in a message or an event, at any depth."""
    if isinstance(value, BlobRef):
        yield value
    elif isinstance(value, BaseModel):
        for _, item in value:
            yield from iterate_refs(item)
    elif isinstance(value, tuple):
        for item in value:
            yield from iterate_refs(item)


def select_events(events: Sequence[RecordedEvent], kind: type[EventType]) -> list[EventType]:
    """Return the events of one type, the oldest first."""
    return [recorded.event for recorded in events if isinstance(recorded.event, kind)]
