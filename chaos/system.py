"""The interface of the system of a run: this system (`chaos.handoff_system`), or plain Celery
(`benchmarks/celery_control` in the repository).

Both have processes with the same names on the same queues, from the same fork server, and the
same kinds of Redis and model server. So the killer, the invariants and the report serve both.
Each system names the features that it lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from handoff_queue.chaos.api_user import ApiRecords
from handoff_queue.chaos.expected_outcomes import StoredJob
from handoff_queue.chaos.features import FeatureRecords
from handoff_queue.chaos.fleet import Fleet, Member, Size
from handoff_queue.chaos.job_generator import Draw
from handoff_queue.chaos.model_server import Call, UncountedCall
from handoff_queue.chaos.planned_jobs import SPECIALISTS, CallKey, PlannedJob

OVERRUNS = "jobs over their budget, by the server's usage counts"
"""Name of a promise in the report. A system may lack it."""


class System(Protocol):
    """Jobs on a fleet. Methods raise `StoreError` if Redis is unreachable."""

    @property
    def absent(self) -> Mapping[str, str]:
        """Promises and faults that this system does not have: name in the report -> reason."""

    @property
    def frozen_at(self) -> str:
        """Failpoint at which a worker freezes. Its process runs a handoff at this point."""

    @property
    def counted_at(self) -> str:
        """Failpoint after the request that counts a part of a chord, where its answer can be
        lost.
        """

    def adapt_job(self, job: PlannedJob) -> PlannedJob:
        """Return the job in the form that this system supports."""

    def submit(self, job: PlannedJob) -> None:
        """Submit a job. The same job twice is one job."""

    def act_as_users(self, jobs: Collection[PlannedJob], call_keys: Collection[CallKey], /) -> None:
        """Act as the users of these jobs: approve, reject or cancel.

        Args:
            call_keys: all calls so far.
        """

    def find_ended_jobs(self, names: Collection[str]) -> set[str]:
        """Return the ended jobs."""

    def find_stuck(self, names: Collection[str], /) -> set[str]:
        """Return the stuck jobs. No message in Redis can continue them, and that for so long
        that no process can hold a message either.
        """

    def find_stored_calls(
        self, names: Collection[str], call_keys: Collection[CallKey], /
    ) -> set[CallKey]:
        """Return the calls of these jobs whose replies are stored.

        Args:
            call_keys: all calls so far.
        """

    def find_holders(
        self, jobs: Collection[PlannedJob], /
    ) -> Mapping[tuple[str, str], tuple[int, int]]:
        """Return the claims of these jobs. A key is (job's name, handoff's id). A value is (pid of
        the process that holds the claim, number of claims in a row without progress).
        """

    def read_job_record(self, name: str) -> StoredJob:
        """Return the record of a job at the end of the run."""

    def get_point_name(self, point: str, kind: str, to: str = SPECIALISTS[0], /) -> str | None:
        """Return the system's name of our failpoint; None if its processes have no such point.

        Args:
            to: the queue, for a system that publishes the messages of a group one by one.
        """

    @property
    def is_busy(self) -> bool:
        """True if schedules or their jobs are left, or jobs that get messages."""

    def begin_users(self, seed: int, /) -> Sequence[PlannedJob]:
        """Begin to add schedules and to send messages. Return the jobs of these users."""

    def make_slots_due(self) -> bool:
        """Make slots of the schedules due. Return False if that is not possible now."""

    def finish(self) -> None:
        """Begin to remove the schedules, and start no further job that gets messages."""

    def collect_api_records(self, calls: Sequence[UncountedCall], /) -> ApiRecords | None:
        """Return the records of the users of the HTTP API; None if the system has no API.

        Args:
            calls: calls of the jobs that are not compared with a plan.
        """

    def collect_feature_records(
        self, jobs: Collection[PlannedJob], calls: Sequence[Call], /
    ) -> Sequence[FeatureRecords]:
        """Return the records of the features that only this system has.

        Args:
            jobs: all jobs.
            calls: all calls.
        """

    def close(self) -> None:
        """Close the connections."""


class WithoutApi:
    """The methods of a system without schedules, without an HTTP API and without features."""

    is_busy = False

    def begin_users(self, _seed: int) -> Sequence[PlannedJob]:
        return ()

    def make_slots_due(self) -> bool:
        return False

    def finish(self) -> None:
        pass

    def collect_api_records(self, _calls: Sequence[UncountedCall]) -> ApiRecords | None:
        return None

    def collect_feature_records(
        self, _jobs: Collection[PlannedJob], _calls: Sequence[Call]
    ) -> Sequence[FeatureRecords]:
        return ()


Made_co = TypeVar("Made_co", bound=System, covariant=True)


@dataclass(frozen=True, slots=True)
class Kind(Generic[Made_co]):
    """A kind of system, and how to make one."""

    members: Callable[[Size], Sequence[Member]]
    """Return the processes of a fleet of this size."""
    make: Callable[[Fleet], Made_co]
    """Make the system on a running fleet."""
    draw: Draw
    """Kinds of jobs that the system can run."""
