"""When nobody waits for what a call would bring: its job, or one above it, has ended or was cancelled; its handoff, or that which its job
does, was given up; or its job waits for a person. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from handoff_queue.chaos.expected_outcomes import Story
from handoff_queue.chaos.in_flight_calls import STORED_WITHIN_S
from handoff_queue.chaos.plan import CallKey, PlannedJob

SENT_WITHIN_S = STORED_WITHIN_S
"""From the ledger's word that a call may be made until the model's server has read it: the same way, back. Seen on two cores with a load of
twelve: 0.6 s."""


@dataclass(frozen=True)
class Quiet:
    """Both by job's name."""

    jobs: Mapping[str, PlannedJob]
    stories: Mapping[str, Story]

    def since(self, key: CallKey, at: float) -> float | None:
        """Since when nobody waits for a call that came in at this time; None: somebody does, or did when it was sent."""
        return min(
            (
                begin
                for begin, end in self._times(key.job, key.handoff)
                if begin + SENT_WITHIN_S < at < end
            ),
            default=None,
        )

    def _times(self, name: str, handoff: str) -> Iterator[tuple[float, float]]:
        """From when until when."""
        job, story = self.jobs.get(name), self.stories.get(name)
        if job is None or story is None:
            return
        for at in (*story.ended_at, story.cancelled_at, story.given_up_at.get(handoff)):
            if at is not None:
                yield at, float("inf")
        yield from story.asked
        if job.parent:
            yield from self._times(job.parent, f"{name.removeprefix(job.parent)[1:]}.1")
