"""The system of a run, as the run, the killer, the invariants and the report see it: this system
(`chaos.handoff_system`), or plain Celery (`chaos.celery_system`).

Both have processes with the same names on the same queues, from the same fork server, on the same
Redis and the same model's server. So one killer strikes both, one server counts both, and one
report judges both. A feature that a system lacks is named.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from handoff_queue.chaos.expected_outcomes import Story
from handoff_queue.chaos.fleet import Fleet, Member, Size
from handoff_queue.chaos.job_generator import Draw
from handoff_queue.chaos.plan import SPECIALISTS, CallKey, PlannedJob

OVERRUNS = "jobs over their budget, by the server's books"
"""A promise, as the report calls it; a system may lack it."""


class System(Protocol):
    """Jobs on a fleet. Methods raise `StoreError` if Redis is unreachable."""

    @property
    def absent(self) -> Mapping[str, str]:
        """Promises and faults that this system does not have: as the report calls them, and why."""

    @property
    def frozen_at(self) -> str:
        """The failpoint at which a frozen worker freezes: it has work in its hands then."""

    @property
    def counted_at(self) -> str:
        """The failpoint behind what counts a chord's part: Redis's answer can be lost there."""

    def planned(self, job: PlannedJob) -> PlannedJob:
        """Return the job in the form that this system supports."""

    def submit(self, job: PlannedJob) -> None:
        """Enqueue it; the same job twice is one job."""

    def attend(self, jobs: Collection[PlannedJob], called: Collection[CallKey], /) -> None:
        """Act as the users of these jobs while they run: approve, cancel.

        Args:
            called: all calls so far.
        """

    def ended(self, names: Collection[str]) -> set[str]:
        """Return the ended jobs."""

    def stuck(self, names: Collection[str], /) -> set[str]:
        """Return the stuck jobs: nothing in Redis can continue them, and has not for so long that
        no process holds them either.
        """

    def stored(self, names: Collection[str], called: Collection[CallKey], /) -> set[CallKey]:
        """Return the calls of these jobs whose replies are stored.

        Args:
            called: all calls so far.
        """

    def holders(self, jobs: Collection[PlannedJob], /) -> Mapping[tuple[str, str], tuple[int, int]]:
        """Return the process (pid) that holds a claim on each handoff of these jobs, and the number
        of its claims in a row without progress.

        The keys are the job's name and the handoff's id.
        """

    def story(self, name: str) -> Story:
        """Return the record of a job at the end of the run."""

    def point(self, point: str, kind: str, to: str = SPECIALISTS[0], /) -> str | None:
        """Return the system's name of our failpoint; None if its processes have no such point.

        Args:
            to: the queue, where messages of a group are published one by one.
        """

    def close(self) -> None:
        """Close the connections."""


Made_co = TypeVar("Made_co", bound=System, covariant=True)


@dataclass(frozen=True, slots=True)
class Kind(Generic[Made_co]):
    """A system before there is a fleet."""

    members: Callable[[Size], Sequence[Member]]
    on: Callable[[Fleet], Made_co]
    draw: Draw
    """The jobs that it can be given."""
