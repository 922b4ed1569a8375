"""Equal handoffs of jobs that run at once, and the promises about their shared runs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

PAID_TWICE = "equal handoffs that ran at the same time, or copied a wrong result"
NOT_IN_BATCHES = "live calls of shared runs whose jobs have batches"
"""Names of the promises in the report."""


@dataclass(frozen=True, slots=True)
class EqualHandoff:
    """The handoff of one of several jobs with the same request."""

    group: str
    """Name of the request, which all jobs of the group have."""
    job_id: str
    status: str
    began_at: float
    """Unix seconds of its first claim."""
    ended_at: float
    output: str
    tokens: int
    """Tokens that its result and the budget of its job have."""
    copied_from: str | None
    """Job whose result it copied; None: it ran itself."""
    is_given_up: bool
    """True if kills have ended it."""
    batch_calls: int = 0
    """Its calls in batches."""
    live_calls: int = 0
    """Its calls outside of batches, if its job has batches and slack."""

    def overlaps(self, other: EqualHandoff) -> bool:
        """Return whether both ran at the same time."""
        return self.began_at < other.ended_at and other.began_at < self.ended_at


@dataclass(frozen=True, slots=True)
class EqualRecords:
    """All groups of equal handoffs of a run."""

    handoffs: Sequence[EqualHandoff]

    def breaches(self) -> dict[str, list[str]]:
        """Return the breaches of each promise: name of the promise -> one line each."""
        lines: list[str] = []
        for group in dict.fromkeys(handoff.group for handoff in self.handoffs):
            members = []
            for handoff in self.handoffs:
                if handoff.group == group:
                    members.append(handoff)
            lines += _faults_of(group, members)
        live: list[str] = []
        for handoff in self.handoffs:
            if handoff.status == "ok" and handoff.copied_from is None and handoff.live_calls:
                live.append(f"{handoff.group}: {handoff.job_id} made {handoff.live_calls}")
        return {PAID_TWICE: lines, NOT_IN_BATCHES: live}

    def figures(self) -> dict[str, int]:
        """Return the amounts that a reader needs to judge the run: name -> number."""
        copies = sum(handoff.copied_from is not None for handoff in self.handoffs)
        batched = sum(handoff.batch_calls for handoff in self.handoffs)
        return {
            "equal handoffs": len(self.handoffs),
            "copied results": copies,
            "calls of shared runs in batches": batched,
        }


def _faults_of(group: str, members: Sequence[EqualHandoff]) -> Iterator[str]:
    """Yield the faults of one group."""
    runs = []
    for handoff in members:
        if handoff.copied_from is None:
            runs.append(handoff)
    for first, second in combinations(runs, 2):
        if first.overlaps(second):
            yield f"{group}: {first.job_id} and {second.job_id} ran at the same time"
    outputs = {}
    for run in runs:
        if run.status == "ok":
            outputs[run.job_id] = run.output
    for handoff in members:
        if handoff.copied_from is None:
            if handoff.status != "ok" and not handoff.is_given_up:
                yield f"{group}: {handoff.job_id} is {handoff.status}"
        elif outputs.get(handoff.copied_from) != handoff.output:
            yield f"{group}: {handoff.job_id} has no copy of the result of {handoff.copied_from}"
        elif handoff.tokens:
            yield f"{group}: {handoff.job_id} paid {handoff.tokens} tokens for a copy"
