"""Summary of a job of any size in one round trip. It has the usage, the first and last events of
the journal, and some handoffs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.handoff_info import HandoffInfo, parse_handoff_info, read_hashes
from handoff_queue.shared.store.job_info import JobInfo, parse_job_info, with_progress
from handoff_queue.shared.store.journal import parse_entry
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.store.script_arguments import (
    MAX_TEXT_BYTES,
    build_read_list_arguments,
    parse_handoff_id,
    parse_name,
)
from handoff_queue.shared.store.user_messages import StoredMessage, parse_stored_message
from handoff_queue.shared.types.budget_measures import SPENT_FIELDS
from handoff_queue.shared.types.errors import MalformedMessage, UnknownJob
from handoff_queue.shared.types.events import RecordedEvent, Routed
from handoff_queue.shared.types.ids import HandoffId, JobId

HEAD_EVENTS = 20
"""First events of a journal that are searched for the router's decision."""
TAIL_EVENTS = 100
"""Last events of a journal that are read. They have about 50 KB, and the latest event of each
shown handoff is among them.
"""
MAX_EVENT_BYTES = 16_000
"""Size of the largest event that is read. The event of a plan of thousands of steps has a
megabyte.
"""
MAX_DUE = 5_000
"""Due entries of all jobs that are searched for running handoffs of this job: 1 ms of Redis's
time.
"""
MAX_USER_MESSAGES = 20
"""Newest messages of users that are read."""
MAX_JOB_HANDOFFS = 500
"""Due handoffs of the job whose state is read: 1 ms of Redis's time."""

_JOB_FIELDS = (
    "asked_last",
    "status",
    "title",
    "submitted_at",
    *SPENT_FIELDS,
    "cancelled",
    "specialists",
    "asks",
    "limits_to_raise",
    "asked_at",
    "calls",
    "child_jobs_lack",
    "parent",
)
"""Fields of a job's hash that are read. The hash also has a field for each chord, so it can
have thousands of fields.
"""
_SHORT = ("tally", "plan_short", "failed_last", "dropped_last")


@dataclass(frozen=True, slots=True)
class HandoffTally:
    """Numbers of a job's handoffs by state, as `parts/handoff_tally.lua` counts them."""

    issued: int = 0
    ok: int = 0
    partial: int = 0
    needs_input: int = 0
    failed: int = 0
    dropped: int = 0

    @property
    def open(self) -> int:
        """Return the number of handoffs that run or wait."""
        return self.issued - self.ok - self.partial - self.needs_input - self.failed - self.dropped


@dataclass(frozen=True, slots=True)
class JobSummary:
    """Summary of a job at one moment."""

    at: float
    """Unix time in seconds, by Redis's clock."""
    job: JobInfo
    """The job, without its children."""
    tally: HandoffTally
    plan: str
    """Summary of a large plan as JSON; '' if the plan is small or unknown."""
    failed: tuple[HandoffId, ...]
    """Handoffs with the status `failed` or `needs_input`: the newest 20, the newest last."""
    dropped: tuple[HandoffId, ...]
    running: tuple[HandoffId, ...]
    deferred: tuple[HandoffId, ...]
    is_cut: bool
    """True if there may be more running or deferred handoffs."""
    first: RecordedEvent
    """The submission."""
    tail: tuple[RecordedEvent, ...]
    """The last events, oldest first, without events longer than `MAX_EVENT_BYTES` and without
    events that this version cannot read.
    """
    messages: tuple[StoredMessage, ...] = ()
    """The newest messages of users, oldest first."""


@dataclass(frozen=True, slots=True)
class HandoffRecord:
    """The hash of one handoff."""

    info: HandoffInfo
    assigned_to: str
    message: str
    """Digest of its `AgentHandoff`."""
    result: str | None
    """Digest of its `HandoffResult`, or None if there is no result yet."""
    status: str | None
    """Status of the result, or None if there is no result yet."""
    group: str | None
    """Chord that it belongs to, or None."""
    child: JobId | None
    """Child job that does it, or None."""


class JobSummaries:
    """Reads summaries of jobs."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def read(self, job_id: JobId) -> JobSummary:
        """Return the summary of a job, in one round trip.

        Raises:
            UnknownJob: the job does not exist.
        """
        arguments = [
            TAIL_EVENTS,
            MAX_EVENT_BYTES,
            MAX_DUE,
            MAX_JOB_HANDOFFS,
            MAX_USER_MESSAGES,
            *_JOB_FIELDS,
            *_SHORT,
        ]
        answer = self._connection.run_script(
            "job_summary", [keys.job(job_id), keys.DUE, keys.JOBS], arguments
        )
        if not answer or not answer[3]:
            raise UnknownJob.for_job(job_id)
        at_ms, submitted_ms, values, first, tail, running, deferred_ids, more = answer[:8]
        question, messages, version = answer[8:]
        fields = with_progress(*map(_select_fields, values))
        if question:
            fields[b"approval:" + fields[b"asked_last"]] = question
        job = parse_job_info(job_id, fields, version, float(submitted_ms or 0))
        return JobSummary(
            at=int(at_ms) / 1000,
            job=job,
            tally=_parse_tally(fields.get(b"tally", b"")),
            plan=fields.get(b"plan_short", b"").decode(),
            failed=_parse_ids(fields.get(b"failed_last", b"")),
            dropped=_parse_ids(fields.get(b"dropped_last", b"")),
            running=tuple(map(parse_handoff_id, running)),
            deferred=tuple(map(parse_handoff_id, deferred_ids)),
            is_cut=bool(more),
            first=parse_entry(*first[0]),
            tail=_parse_events(tail),
            messages=tuple(map(parse_stored_message, messages[::2], messages[1::2])),
        )

    def read_routing_decision(self, job_id: JobId) -> Routed | None:
        """Return the router's decision for a job of mode `auto`, or None if there is no
        decision yet. Only the first events are read, because a job issues few steps before the
        decision.
        """
        limits = build_read_list_arguments(
            0, HEAD_EVENTS - 1, MAX_EVENT_BYTES, HEAD_EVENTS * MAX_EVENT_BYTES
        )
        entries = self._connection.run_script("read_list", [keys.log(job_id)], limits)
        for recorded in _parse_events(list(enumerate(entries, start=1))):
            if isinstance(recorded.event, Routed):
                return recorded.event
        return None

    def read_handoffs(
        self, job_id: JobId, handoff_ids: Sequence[HandoffId]
    ) -> dict[HandoffId, HandoffRecord]:
        """Return the existing handoffs among the given ones, in two round trips."""
        handoffs: dict[HandoffId, HandoffRecord] = {}
        for handoff_id, fields in read_hashes(self._connection, job_id, handoff_ids).items():
            handoffs[handoff_id] = _build_record(fields)
        return handoffs


def _select_fields(values: Sequence[bytes | None]) -> dict[bytes, bytes]:
    """Return the existing fields of a hash.

    Args:
        values: values of the fields, in the order of the arguments.
    """
    fields: dict[bytes, bytes] = {}
    for name, value in zip((*_JOB_FIELDS, *_SHORT), values, strict=True):
        if value is not None:
            fields[name.encode()] = value
    return fields


def _parse_tally(text: bytes) -> HandoffTally:
    """Return the tally in the progress of a job. A text of a worker without a tally is empty."""
    try:
        return HandoffTally(*map(int, text.split()))
    except (TypeError, ValueError):
        return HandoffTally()


def _build_record(fields: dict[bytes, bytes]) -> HandoffRecord:
    def read_text(name: bytes) -> str | None:
        if name in fields:
            return parse_name(fields[name])
        return None

    child = read_text(b"child")
    return HandoffRecord(
        info=parse_handoff_info(fields),
        assigned_to=read_text(b"agent") or "",
        message=read_text(b"digest") or "",
        result=read_text(b"result"),
        status=read_text(b"status"),
        group=read_text(b"group"),
        child=JobId(child) if child else None,
    )


def _parse_ids(text: bytes) -> tuple[HandoffId, ...]:
    """Return the handoffs in a field of the progress, of any length."""
    return tuple(map(parse_handoff_id, text[:MAX_TEXT_BYTES].split()))


def _parse_events(entries: Sequence[Any]) -> tuple[RecordedEvent, ...]:
    """Return the events of a summary. An entry with an empty text was too long, and is left out. So
    is an entry that this version cannot read: a worker can write any text.
    """
    events: list[RecordedEvent] = []
    for version, entry in entries:
        with suppress(MalformedMessage):
            events.append(parse_entry(version, entry))
    return tuple(events)
