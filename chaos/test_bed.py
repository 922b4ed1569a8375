"""The test bed of a run: a fleet, its model, the system on it, and its jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic

from handoff_queue.chaos.expected_outcomes import StoredJob
from handoff_queue.chaos.faults import Strike, with_outages
from handoff_queue.chaos.fleet import Fleet, Size, running_fleet
from handoff_queue.chaos.invariants import Handoff, RunRecords
from handoff_queue.chaos.killer import QUEUES
from handoff_queue.chaos.leaks import find_leaks
from handoff_queue.chaos.metric_counts import find_wrong_counts
from handoff_queue.chaos.model_server import ChaosModel
from handoff_queue.chaos.planned_jobs import CallKey, PlannedJob
from handoff_queue.chaos.system import Kind, Made_co
from handoff_queue.chaos.unwanted_calls import SeenClaim
from handoff_queue.shared.local.fork_server import ForkServer
from handoff_queue.shared.local.run_directory import RunDirectory
from handoff_queue.shared.store.redis.connection import translate_errors
from handoff_queue.shared.types.errors import StoreError, UserError
from handoff_queue.shared.types.names import UNROUTED_QUEUE

CHECK_EVERY_S = 0.05
SETTLE_S = 180.0
"""Seconds after the last fault after which a job that has not ended counts as lost."""
TIDY_WITHIN_S = 30.0
"""Seconds after the last job's end for sweepers and late messages to clean up."""

Progress = Callable[[str], None]


@dataclass(slots=True)
class TestBed(Generic[Made_co]):
    """A fleet, its model, the system on it, and the jobs that were given to it."""

    fleet: Fleet
    model: ChaosModel
    system: Made_co
    jobs: dict[str, PlannedJob] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)
    """Names of the jobs that have not ended and are not stuck."""
    stored_at: dict[CallKey, float] = field(default_factory=dict)
    """Time at which the reply to a call was first seen in the store."""
    claims_seen: dict[Handoff, list[SeenClaim]] = field(default_factory=dict)
    """The claims of each handoff that were seen, in order."""
    refused_jobs: list[str] = field(default_factory=list)
    """Jobs that could not follow their earlier job, with the error."""
    _next: list[PlannedJob] = field(default_factory=list)
    """Next jobs of users whose jobs have ended."""
    answered_at: list[float] = field(default_factory=list)
    """Times at which Redis answered."""

    def submit(self, job: PlannedJob) -> bool:
        """Submit a job. Return False if Redis is unreachable: the job may exist, so the caller
        must submit the same job again.
        """
        job = self.system.adapt_job(job)
        self.model.add([job])
        try:
            self.system.submit(job)
        except StoreError:
            return False
        self.adopt(job)
        return True

    def adopt(self, job: PlannedJob) -> None:
        """Add a job that another process has submitted."""
        self.jobs[job.name] = job
        self.open.add(job.name)

    def observe(self) -> None:
        """Record what the system shows now: whether Redis answers, stored replies, claims and
        ended jobs. Act for the users of the open jobs. Do nothing more if Redis is
        unreachable.
        """
        asked_at = time.time()
        call_keys = {call.key for call in list(self.model.calls)}
        try:
            with translate_errors():
                self.fleet.connection.redis.ping()
            self.answered_at.append(asked_at)
            names = {running.name for running in self._working_jobs()}
            for key in self.system.find_stored_calls(names, call_keys):
                self.stored_at.setdefault(key, time.time())
            self._see_claims()
            self.system.attend([self.jobs[name] for name in self.open], call_keys)
            self._see_ends()
            self.open -= self.system.stuck(self.open)
        except StoreError:
            return

    def _working_jobs(self) -> list[PlannedJob]:
        """Return jobs that may have a running handoff, including children."""
        planned_jobs: list[PlannedJob] = []
        for name in self.open:
            planned_jobs += self.jobs[name].family
        return planned_jobs

    def _see_claims(self) -> None:
        for whose, (pid, count) in self.system.holders(self._working_jobs()).items():
            process, claims = self.fleet.name_of(pid), self.claims_seen.setdefault(whose, [])
            if not claims or (claims[-1].process, claims[-1].count) != (process, count):
                claims.append(SeenClaim(process, count, time.time()))

    def _see_ends(self) -> None:
        """Record ended jobs, and submit the jobs that follow them."""
        ended_jobs = self.system.find_ended_jobs(self.open)
        self.open -= ended_jobs
        for name in sorted(ended_jobs):
            if (following := self.jobs[name].then) is not None:
                self._next.append(following)
        for job in list(self._next):
            try:
                is_settled = self.submit(job)
            except UserError as error:  # the earlier job has no result to follow
                self.refused_jobs.append(f"{job.name}: {error}")
                is_settled = True
            if is_settled:
                self._next.remove(job)

    @property
    def is_busy(self) -> bool:
        """True if a submitted job has not ended, its next job was not submitted yet, or
        schedules are left.
        """
        return bool(self.open or self._next or self.system.is_busy)

    def settle(self) -> None:
        """Wait for the end of every job, for at most `SETTLE_S` seconds."""
        until = time.monotonic() + SETTLE_S
        while self.is_busy and time.monotonic() < until:
            self.observe()
            time.sleep(CHECK_EVERY_S)

    def close(
        self,
        strikes: Sequence[Strike],
        not_reached: Sequence[str] | None = None,
        not_happened: Sequence[str] = (),
    ) -> RunRecords:
        """Wait for the system to clean up, for at most `TIDY_WITHIN_S` seconds, and return the
        records of the run.

        Args:
            not_reached: as in `RunRecords`.
            not_happened: as in `RunRecords`.
        """
        rest = self._tidy(was_struck=bool(strikes))
        job_records: dict[str, StoredJob] = {}
        for job in self.jobs.values():
            for member in job.family:
                job_records[member.name] = self.system.job_record(member.name)
        return RunRecords(
            jobs=list(self.jobs.values()),
            calls=list(self.model.calls),
            strikes=with_outages(strikes, self.answered_at),
            job_records=job_records,
            lease_s=self.fleet.size.lease_s,
            left_behind=rest,
            refused_requests=list(self.model.violations),
            not_reached=not_reached,
            not_happened=[*not_happened, *self.refused_jobs],
            stored_at=self.stored_at,
            claims_seen=self.claims_seen,
            absent=self.system.absent,
            api=self.system.api_records(list(self.model.uncounted)),
            features=self.system.feature_records(list(self.jobs.values()), list(self.model.calls)),
        )

    def _tidy(self, *, was_struck: bool) -> list[str]:
        """Wait until there are no leaks and no wrong counts, and return the remaining ones."""
        until = time.monotonic() + TIDY_WITHIN_S
        while True:
            with translate_errors():
                redis = self.fleet.connection.redis
                rest = find_leaks(redis, (*QUEUES, UNROUTED_QUEUE), was_struck=was_struck)
                rest += find_wrong_counts(redis)
            if not rest or time.monotonic() > until:
                return rest
            time.sleep(CHECK_EVERY_S * 10)


@contextmanager
def running_test_bed(
    kind: Kind[Made_co], size: Size, fork_server: ForkServer | None = None
) -> Iterator[TestBed[Made_co]]:
    """Start a model, a fleet and a system in a private folder, which is removed after the block.

    Args:
        fork_server: see `running_fleet`.
    """
    with (
        RunDirectory() as folder,
        ChaosModel() as model,
        running_fleet(folder.path, size, model.url, kind.members(size), fork_server) as fleet,
    ):
        system = kind.make(fleet)
        try:
            yield TestBed(fleet, model, system)
        finally:
            system.close()
