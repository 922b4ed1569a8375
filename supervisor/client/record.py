"""All data of one job, read once. `handoff show` shows it, and `handoff export` writes it to a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from handoff_queue.shared.store.dead_letters import DeadLetter
from handoff_queue.shared.store.jobs import HandoffStanding, JobStanding
from handoff_queue.shared.store.store import Ledger
from handoff_queue.shared.types.errors import UnknownJob
from handoff_queue.shared.types.events import HandoffFinished, HandoffIssued, Recorded
from handoff_queue.shared.types.handoff import BlobRef
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.supervisor.client.waiting_reasons import missing_for


@dataclass(frozen=True, slots=True)
class Record:
    """A job at one moment."""

    at: float
    """Unix time in seconds, by Redis's clock."""
    job: JobStanding
    journal: tuple[Recorded, ...]
    handoffs: Mapping[HandoffId, HandoffStanding]
    payloads: Mapping[str, str]
    """All payloads of the journal, by digest."""
    waits: tuple[str, ...]
    """One line for each missing worker."""


def record_of(ledger: Ledger, job_id: JobId) -> Record:
    """Read the journal of a job and all its payloads.

    Raises:
        UnknownJob: there is none.
        LedgerError: its payloads are gone.
    """
    journal = tuple(ledger.journal.read(job_id))
    standing = next(iter(ledger.jobs.standings([job_id])), None)
    if not journal or standing is None:
        raise UnknownJob.named(job_id)
    issued = [one.event for one in journal if isinstance(one.event, HandoffIssued)]
    ends = [one.event for one in journal if isinstance(one.event, HandoffFinished)]
    finished = {event.handoff_id for event in ends}
    results = {event.result.digest for event in ends}
    digests = [ref.digest for one in journal for ref in refs_in(one.event)] + [
        event.specialist for event in issued
    ]
    return Record(
        at=ledger.connection.now(),
        job=standing,
        journal=journal,
        handoffs=ledger.jobs.handoffs(job_id, [event.handoff_id for event in issued]),
        payloads=ledger.blobs.get(
            job_id,
            [digest for digest in digests if digest not in results],
            results=[*results],
        ),
        waits=tuple(
            map(
                str,
                missing_for(
                    ledger,
                    standing,
                    [one.handoff_id for one in issued if one.handoff_id not in finished],
                ),
            )
        ),
    )


def letters_about(ledger: Ledger, job_id: JobId) -> tuple[DeadLetter, ...]:
    """Dead letters that speak of a job."""
    return tuple(letter for letter in ledger.dead.newest() if job_id in letter.body)


def refs_in(value: object) -> Iterable[BlobRef]:
    """Every payload that a wire type refers to, however deep."""
    if isinstance(value, BlobRef):
        yield value
    elif isinstance(value, BaseModel):
        for _, item in value:
            yield from refs_in(item)
    elif isinstance(value, tuple):
        for item in value:
            yield from refs_in(item)
