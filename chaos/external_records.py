"""The calls of handoffs that the Claude Agent SDK runs, and the promise about them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from handoff_queue.chaos.job_shapes import Shape
from handoff_queue.chaos.model_server import Call
from handoff_queue.chaos.planned_jobs import PlannedJob

NOT_BY_THE_CLI = "calls for the Claude Agent SDK that its program did not ask for"
"""Name of the promise in the report. All other promises hold for these calls, too."""


@dataclass(frozen=True, slots=True)
class ExternalRecords:
    """The calls of the steps whose specialist has `runner: agent-sdk`."""

    calls: Sequence[Call]

    def breaches(self) -> dict[str, list[str]]:
        """Return the breaches of each promise: name of the promise -> one line each."""
        lines: list[str] = []
        for call in self.calls:
            if not call.is_external:
                lines.append(f"{call.key.job} {call.key.handoff}, turn {call.key.turn}")
        return {NOT_BY_THE_CLI: lines}

    def figures(self) -> dict[str, int]:
        """Return the amounts that a reader needs to judge the run: name -> number."""
        return {"calls through the Claude Agent SDK": len(self.calls)}


def external_records(jobs: Collection[PlannedJob], calls: Sequence[Call]) -> ExternalRecords:
    """Return the records of these jobs."""
    names = {}
    for job in jobs:
        if job.shape is Shape.EXTERNAL:
            names[job.name] = job
    own: list[Call] = []
    for call in calls:
        if call.key.job in names and names[call.key.job].is_external_step(call.key.handoff):
            own.append(call)
    return ExternalRecords(own)
