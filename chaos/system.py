"""What a run is made on, as far as run, killer, books and report have to know: this system
(`chaos.handoff_system`), or plain Celery (`chaos.celery_system`).

Both are processes with the same names on the same queues, forked by the same nursery, on the
same Redis and the same model's server; so one killer strikes both, one server counts both, and
one report judges both. What a system does not have is named, never passed over.
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
    """Jobs on a fleet. Whatever speaks to Redis raises `StoreError` where it cannot."""

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
        """The job as this system can be given it."""

    def submit(self, job: PlannedJob) -> None:
        """Enqueue it; the same job twice is one job."""

    def attend(self, jobs: Collection[PlannedJob], called: Collection[CallKey], /) -> None:
        """Do what the users of these jobs do while they run: approve, cancel. `called`: all
        calls that were made.
        """

    def ended(self, names: Collection[str]) -> set[str]:
        """Those of these jobs that have ended."""

    def stuck(self, names: Collection[str], /) -> set[str]:
        """Those of these jobs that nothing in Redis can carry on any more, and has not for so
        long that nobody holds it either.
        """

    def stored(self, names: Collection[str], called: Collection[CallKey], /) -> set[CallKey]:
        """The calls of these jobs whose replies have been stored by now. `called`: all that
        were made.
        """

    def holders(self, jobs: Collection[PlannedJob], /) -> Mapping[tuple[str, str], tuple[int, int]]:
        """Whose process, by its pid, has a claim on each handoff of these jobs, and how many
        in a row that is in which it got no further.

        By job's name and handoff's id.
        """

    def story(self, name: str) -> Story:
        """What has become of a job, when all is over."""

    def point(self, point: str, kind: str, to: str = SPECIALISTS[0], /) -> str | None:
        """What a failpoint of ours is called here; None: no process of this kind passes
        anything of the sort.

        `to`: the queue, where messages of a group are published one by one.
        """

    def close(self) -> None:
        """Of its connections."""


Made_co = TypeVar("Made_co", bound=System, covariant=True)


@dataclass(frozen=True, slots=True)
class Kind(Generic[Made_co]):
    """A system before there is a fleet."""

    members: Callable[[Size], Sequence[Member]]
    on: Callable[[Fleet], Made_co]
    draw: Draw
    """The jobs that it can be given."""
