"""The filter of the list of jobs. `lua/parts/job_filter.lua` applies it."""

from __future__ import annotations

from dataclasses import dataclass

from handoff_queue.shared.store.positional_arguments import JobFilterArguments
from handoff_queue.shared.types.events import JobStatus


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Filter of the list of jobs. A field that is None matches every job."""

    statuses: frozenset[JobStatus] = frozenset()
    """Empty: every status."""
    tenant: str | None = None
    submitted_before: float | None = None
    """Unix time in seconds."""
    submitted_after: float | None = None
    """Unix time in seconds."""
    mode: str | None = None
    """The mode of the request."""
    priority: str | None = None
    text: str | None = None
    """A part of the title or of the id. Capital letters of ASCII match small letters."""
    min_microusd: int | None = None
    """Least cost so far in millionths of a US dollar."""
    specialist: str | None = None
    """A specialist that got a handoff of the job."""
    failed_specialist: str | None = None
    """A specialist of which a handoff of the job failed, also if a later handoff did not."""


EVERY_JOB = JobFilter()


def find_first_place(where: JobFilter) -> str:
    """Return the place in the list of jobs at which a filter begins to read."""
    if where.submitted_before is None:
        return "+inf"
    return f"({int(where.submitted_before * 1000)}"


def build_job_filter_arguments(
    where: JobFilter, place: str, jobs_read: int, count: int
) -> list[str | int]:
    """Return the arguments of the scripts of the list: see `lua/parts/job_filter.lua`."""
    lowest = "-inf"
    if where.submitted_after is not None:
        lowest = str(int(where.submitted_after * 1000))
    least: str | int = ""
    if where.min_microusd is not None:
        least = where.min_microusd
    text = where.text or ""  # every title contains the empty text
    arguments = JobFilterArguments(
        place=place,
        lowest=lowest,
        most_read=jobs_read,
        most=count,
        tenant=_encode_condition(where.tenant),
        mode=_encode_condition(where.mode),
        priority=_encode_condition(where.priority),
        text=text.encode().lower().decode(),  # as Lua does: ASCII only
        min_usd=least,
        assigned=_encode_condition(where.specialist),
        failed=_encode_condition(where.failed_specialist),
    )
    return [*arguments, *sorted(where.statuses)]


def _encode_condition(value: str | None) -> str:
    """Return a condition for Lua, which has no None: empty for any, or else `=` and the value."""
    if value is None:
        return ""
    return f"={value}"
