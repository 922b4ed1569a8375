"""Paid amounts of jobs, compared with their limits. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from handoff_queue.chaos.expected_outcomes import JobRecord
from handoff_queue.chaos.model import Call
from handoff_queue.chaos.plan import PlannedJob


def overruns_of(
    jobs: Sequence[PlannedJob], calls: Sequence[Call], job_records: Mapping[str, JobRecord]
) -> list[str]:
    """Return one line for each limit that a job and its children have exceeded: calls, paid
    tokens or paid micro-dollars.
    """
    made, tokens, microusd = Counter[str](), Counter[str](), Counter[str]()
    for call in calls:
        made[call.key.job] += 1
        tokens[call.key.job] += call.tokens
        microusd[call.key.job] += call.microusd
    kinds = (
        (made, "max_turns", "calls"),
        (tokens, "max_tokens", "tokens"),
        (microusd, "max_microusd", "micro-dollars"),
    )
    overruns: list[str] = []
    for job in jobs:
        for spent, limit, what in kinds:
            most = _limit(job, job_records[job.name], limit)
            used = sum(spent[member.name] for member in job.family)
            if most is not None and used > most:
                overruns.append(f"{job.name}: {used} of {most} {what}")
    return overruns


def _limit(job: PlannedJob, job_record: JobRecord, name: str) -> int | None:
    """Return a limit of the job. The limit of a child is its slice of its parent's budget."""
    limit: int | None = getattr(job, name)
    if job.parent and job_record.limits:
        limit = getattr(job_record.limits, name)
    return limit
