"""Status and usage of a job, from its hash and its progress in the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

from handoff_queue.shared.store.script_arguments import (
    parse_figure,
    parse_name,
    parse_time,
)
from handoff_queue.shared.types.budget_measures import (
    SPENT_FIELDS,
    SpentAmounts,
    build_spent_fields,
)
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.ids import JobId, JobIdField, is_job_id

PROGRESS = frozenset(
    name.encode()
    for name in (
        *SPENT_FIELDS,
        "tally",
        "calls",
        "asked_last",
        "asked_at",
        "failed_last",
        "failed_agents",
        "dropped_last",
    )
)
"""Facts of a job that workers write. All others count only in the hash of the job. A worker that
was taken over may write a title, a status or children into the progress.
"""


@dataclass(frozen=True, slots=True)
class JobInfo(SpentAmounts):
    """Status and usage of one job. Times are Unix seconds."""

    job_id: JobIdField
    status: JobStatus
    version: int
    title: str
    submitted_at: float
    turns: int = field(default=0, kw_only=True)
    input_tokens: int = field(default=0, kw_only=True)
    output_tokens: int = field(default=0, kw_only=True)
    cost_microusd: int | None = field(default=0, kw_only=True)
    cancelled: bool
    specialists: tuple[str, ...] = ()
    """Allowed specialists; empty: all."""
    cut_calls: int = 0
    cut_tokens: int = 0
    cut_microusd: int = 0
    """The upper-bound part of these figures, as in `Usage`."""
    asks: str = ""
    """Reason why the job waits for a decision of its user; empty if it does not wait."""
    limits_to_raise: tuple[str, ...] = ()
    """Limits of which one is spent, such as `max_tokens`, while the job waits for this decision."""
    approval: str = ""
    """Subject of the approval that the job waits for; empty if it does not wait."""
    calls_to_approve: tuple[str, ...] = ()
    """Tools of the calls that wait for an approval, one for each call."""
    asked_at: float | None = None
    """Time since which it waits for a person; None if it does not wait."""
    child_jobs_lack: str = ""
    """Words for the amount that is too small for the child jobs of the plan; empty if it is
    enough.
    """
    parent: JobId | None = None
    """The parent of a child job, or None."""
    children: tuple[JobId, ...] = ()
    """Child jobs that run steps of this job, in the order of the steps' assignment. Some may
    not have begun.
    """
    waiting_for: str = ""
    """Missing specialist or role that the job waits for. The hash does not contain it:
    the client adds it.
    """


def with_progress(
    fields: Mapping[bytes, bytes], progress: Mapping[bytes, bytes]
) -> dict[bytes, bytes]:
    """Return the facts of a job: the fields of its hash, and those of its progress that workers
    write.
    """
    facts = dict(fields)
    for name, value in progress.items():
        if name in PROGRESS or name.startswith(b"approval:"):
            facts[name] = value
    return facts


def parse_job_info(
    job_id: JobId, fields: Mapping[bytes, bytes], version: int, submitted_ms: float
) -> JobInfo:
    """Return the information about a job from the fields of its hash and of its progress.

    An open job that waits for a person's answer has the status `waiting`, also while its other
    steps run. `waits_for_person` in `parts/jobs.lua` is the same rule for the filter of the
    list.

    Args:
        version: number of the events in its journal.
        submitted_ms: score of the job in the list of jobs; 0 for a job that is not in the list.
    """
    try:
        return _parse(job_id, fields, version, submitted_ms)
    except (ValueError, OverflowError):  # another program has written a field
        return build_unreadable_job_info(job_id, fields, submitted_ms)


def build_unreadable_job_info(
    job_id: JobId, fields: Mapping[bytes, bytes], submitted_ms: float
) -> JobInfo:
    """Return the information about a job whose record cannot be read."""
    words = fields.get(b"children", b"").decode(errors="replace").split()
    return JobInfo(
        job_id=job_id,
        status=JobStatus.UNREADABLE,
        version=0,
        title="its record in Redis cannot be read",
        submitted_at=submitted_ms / 1000 if isfinite(submitted_ms) else 0.0,
        cost_microusd=None,
        cancelled=False,
        children=tuple(JobId(word) for word in words if is_job_id(word)),
    )


def _parse(
    job_id: JobId, fields: Mapping[bytes, bytes], version: int, submitted_ms: float
) -> JobInfo:
    """Return the information about a job, as `parse_job_info`.

    Raises:
        ValueError, OverflowError: a field has no value of its type.
    """

    def read_number(name: bytes) -> int:
        figure = parse_figure(fields.get(name, b"0"))
        if figure is None:
            raise ValueError(f"{name.decode()} is not a number")
        return figure

    def read_figure(name: bytes) -> int:
        # a worker writes the progress, and a wrong amount must not stop a cancel
        return parse_figure(fields.get(name)) or 0

    def read_text(name: bytes) -> str:
        return fields.get(name, b"").decode()

    status, asks = JobStatus(read_text(b"status") or "queued"), read_text(b"asks")
    approval = parse_name(fields.get(b"approval:" + fields.get(b"asked_last", b""), b""))
    is_waiting = not status.has_ended and bool(asks or approval)
    is_priced = b"unpriced" not in fields and parse_figure(fields.get(b"usd", b"0")) is not None
    return JobInfo(
        job_id=job_id,
        status=JobStatus.WAITING if is_waiting else status,
        version=version,
        title=read_text(b"title"),
        submitted_at=(int(submitted_ms) or read_number(b"submitted_at")) / 1000,
        **build_spent_fields(read_figure, is_priced=is_priced),
        cancelled=b"cancelled" in fields,
        specialists=tuple(read_text(b"specialists").split()),
        asks=asks,
        limits_to_raise=tuple(read_text(b"limits_to_raise").split()) if asks else (),
        approval=approval,
        calls_to_approve=tuple(
            call.partition(":")[2] for call in parse_name(fields.get(b"calls", b"")).split()
        ),
        asked_at=parse_time(fields.get(b"asked_at")) if is_waiting else None,
        child_jobs_lack=read_text(b"child_jobs_lack"),
        parent=JobId(fields[b"parent"].decode().partition("/")[0]) if b"parent" in fields else None,
        children=tuple(map(JobId, read_text(b"children").split())),
    )
