"""Ids of traces and spans, derived from the ids of jobs and handoffs. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

from handoff_queue.shared.types.ids import HandoffId, JobId

_TRACEPARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")
"""Version 00 of https://www.w3.org/TR/trace-context/."""


@dataclass(frozen=True, slots=True)
class StoredTrace:
    """The stored part of a job's trace."""

    traceparent: str | None = None
    """Span in which the job was submitted; None if that span is not exported."""
    parent: JobId | None = None
    """Parent of a child job; None for other jobs."""


@dataclass(frozen=True, slots=True)
class JobSpan:
    """A job that has ended."""

    job_id: JobId
    mode: str
    status: str
    is_failed: bool
    started_at: float
    """Time of the submission or the latest retry, in Unix seconds."""
    ended_at: float
    """Unix seconds."""
    retries: int


@dataclass(frozen=True, slots=True)
class TracePosition:
    """Position of a job in a trace."""

    trace_id: int
    span_id: int
    """Id of the job's own span."""
    parent_id: int | None
    """Id of the span above it; None if the job is the root of its trace."""
    is_sampled: bool | None
    """Decision of the sampler, or None if there is none yet."""


def find_position(job_id: JobId, load_trace: Callable[[JobId], StoredTrace]) -> TracePosition:
    """Return the position of a job in its trace. A child job is in its parent's trace. A job
    with a stored traceparent is in that trace. Any other job has a trace whose id is derived
    from the job's id.

    Args:
        load_trace: reads the stored trace of a job.
    """
    known = load_trace(job_id)
    if known.parent is not None:
        above = find_position(known.parent, load_trace)
        return TracePosition(
            above.trace_id, derive_job_span(job_id), above.span_id, above.is_sampled
        )
    match = _TRACEPARENT.fullmatch(known.traceparent or "")
    if match is not None:
        trace_id, parent_id, flags = (int(text, 16) for text in match.groups())
        return TracePosition(trace_id, derive_job_span(job_id), parent_id, bool(flags & 1))
    return TracePosition(_derive_id(f"trace {job_id}", 16), derive_job_span(job_id), None, None)


def derive_job_span(job_id: JobId) -> int:
    """Return the id of a job's own span."""
    return _derive_id(f"job {job_id}", 8)


def derive_handoff_span(job_id: JobId, handoff_id: HandoffId) -> int:
    """Return the span id of a handoff, which is the same in each process and for each claim."""
    return _derive_id(f"handoff {job_id}/{handoff_id}", 8)


def format_traceparent(trace_id: int, span_id: int, *, is_sampled: bool) -> str:
    return f"00-{trace_id:032x}-{span_id:016x}-{is_sampled:02x}"


def _derive_id(name: str, size: int) -> int:
    """Return an id of `size` bytes. It is never 0, which means no id."""
    digest = sha256(name.encode()).digest()
    return int.from_bytes(digest[:size]) or 1
