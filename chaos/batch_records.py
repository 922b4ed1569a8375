"""The calls in batches of a run, and the promise about them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from handoff_queue.chaos.expected_handoffs import course_of
from handoff_queue.chaos.job_shapes import Shape
from handoff_queue.chaos.model_server import Call
from handoff_queue.chaos.planned_jobs import CallKey, PlannedJob
from handoff_queue.shared.types.names import CLOSING_ROLES

PAID_TWICE = "calls in batches that were paid twice"
NOT_IN_BATCHES = "calls outside of a batch while there was time"
"""Names of the promises in the report."""
BATCH_DEADLINE_S = 3_600
"""Deadline of a job whose calls go into batches. It is so long that no slack ends in a run."""


@dataclass(frozen=True, slots=True)
class BatchRecords:
    """The calls of steps and closing roles, in jobs whose calls go into batches."""

    calls: Sequence[Call]

    def breaches(self) -> dict[str, list[str]]:
        """Return the breaches of each promise: name of the promise -> one line each."""
        paid = Counter(call.key for call in self.calls)
        lines: list[str] = []
        for key, times in paid.items():
            if times > 1:
                lines.append(f"{_name_of(key)}: paid {times} times")
        live = []
        for call in self.calls:
            if not call.is_batched:
                live.append(_name_of(call.key))
        return {PAID_TWICE: lines, NOT_IN_BATCHES: live}

    def figures(self) -> dict[str, int]:
        """Return the amounts that a reader needs to judge the run: name -> number."""
        return {"calls in batches": len(self.calls)}


def batch_records(jobs: Collection[PlannedJob], calls: Sequence[Call]) -> BatchRecords:
    """Return the records of these jobs. The calls of the other roles are live, and are left out."""
    handoffs: set[tuple[str, str]] = set()
    for job in jobs:
        if job.shape is Shape.BATCHED:
            names = {*CLOSING_ROLES, *(step.id for step in job.steps)}
            for handoff in course_of(job).values():
                if handoff.id.rpartition(".")[0] in names:
                    handoffs.add((job.name, handoff.id))
    return BatchRecords([call for call in calls if (call.key.job, call.key.handoff) in handoffs])


def _name_of(key: CallKey) -> str:
    return f"{key.job} {key.handoff}, turn {key.turn}"
