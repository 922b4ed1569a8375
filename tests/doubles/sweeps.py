"""What tests of the sweep do to a ledger: messages published, jobs made due, wake-ups sent so long ago."""

from __future__ import annotations

from shared.ledger import keys
from shared.ledger.journal import Commit
from shared.ledger.ledger import Ledger
from shared.wire.ids import JobId, new_job_id
from shared.wire.names import SUPERVISOR_QUEUE
from tests.doubles.jobs import (
    a_job,
    submission,
    version_of,
)

QUEUE = "researcher"


def make_due(ledger: Ledger, job_id: JobId) -> None:
    ledger.connection.redis.zadd(keys.DUE, {job_id: 1})


def published(ledger: Ledger, *messages: str) -> None:
    """Messages in the queue, whoever's they are."""
    ledger.connection.redis.lpush(QUEUE, *messages)


def issued_ago(ledger: Ledger, job_id: JobId, seconds: float, *handoff_ids: str) -> None:
    """As if these had been published so long ago."""
    at_ms = (ledger.connection.now() - seconds) * 1000
    ledger.connection.redis.zadd(keys.WAITING + QUEUE, {f"{job_id}/{handoff_id}": at_ms for handoff_id in handoff_ids})


def looked_at(ledger: Ledger, job_id: JobId, woken_by: str = SUPERVISOR_QUEUE) -> None:
    """A supervisor has taken the wake-up, and found nothing to do."""
    ledger.journal.set_due(job_id, ledger.connection.now() + 3_600, version_of(ledger, job_id), woken_by=woken_by)


def woken_ago(ledger: Ledger, seconds: float, *job_ids: JobId, queue: str = SUPERVISOR_QUEUE) -> None:
    """As if these wake-ups had been sent so long ago."""
    at_ms = (ledger.connection.now() - seconds) * 1000
    ledger.connection.redis.zadd(keys.WAITING + queue, dict.fromkeys(job_ids, at_ms))


def running_and_queued(ledger: Ledger) -> tuple[JobId, JobId]:
    """A job that was begun, and one that nobody has looked at yet."""
    fresh = new_job_id()
    fields: dict[str, str | int] = {"status": "queued"}
    ledger.journal.commit(Commit(job_id=fresh, expected=0, events=[submission()], fields=fields, due_at=1, creates=True))
    return a_job(ledger), fresh
