"""The runner of an evaluation's jobs, which keeps within the budget of the evaluation."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from handoff_queue.shared.types.errors import StoreUnavailable, UserError
from handoff_queue.shared.types.events import JobSubmitted
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.usage import MICROUSD
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.job_result import JobResult
from handoff_queue.supervisor.client.journal_follower import RECONNECT_EVERY_S, ReconnectLimit
from handoff_queue.supervisor.client.request import Request


@dataclass(frozen=True, slots=True)
class EvaluationBudget:
    """Budget of an evaluation, in micro-dollars. A job reserves its limit when it starts. The
    unspent part is free again when the job ends.
    """

    total: int | None = None
    """Whole budget; None: no limit."""
    slots: int = 1
    """Most jobs at once."""
    spent: int = 0
    """Cost of the ended jobs."""
    reserved: Mapping[str, int] = field(default_factory=dict)
    """Reserved amounts by job."""

    @property
    def left(self) -> int | None:
        """Return the free amount; None: no limit."""
        if self.total is None:
            return None
        return max(0, self.total - self.spent - sum(self.reserved.values()))

    @property
    def next_limit(self) -> int | None:
        """Return the limit of the next job: one slot's share of the free amount. None: no
        limit is needed. 0: the job cannot start now.
        """
        if self.total is None or self.left is None:
            return None
        return max(0, min(self.left, (self.total - self.spent) // self.slots))

    def with_reserved_job(self, job: str, limit: int | None) -> EvaluationBudget:
        """Return the budget after the start of a job.

        Args:
            limit: the amount to reserve; None: nothing.
        """
        if self.total is None or limit is None:
            return self
        return replace(self, reserved={**self.reserved, job: limit})

    def with_ended_job(self, job: str, cost: int | None) -> EvaluationBudget:
        """Return the budget after the end of a job.

        Args:
            cost: None if unknown; then the whole limit of the job counts.
        """
        reserved = dict(self.reserved)
        limit = reserved.pop(job, 0)
        if cost is None:
            cost = limit
        return replace(self, reserved=reserved, spent=self.spent + cost)


POLL_EVERY_S = 0.1
"""Seconds between two searches for ended jobs."""


@dataclass(frozen=True, slots=True)
class EvaluationJob:
    """A job to run. The runner sets its cost limit."""

    key: str
    """Idempotency key, from which the id of the job follows."""
    request: Request


@dataclass(slots=True)
class JobRunner:
    """Runs the added jobs, at most `budget.slots` at once, until no job is left or the budget
    does not suffice for the next job.
    """

    client: Client
    budget: EvaluationBudget
    check: Callable[[], None] = lambda: None
    """Called before each poll. An exception ends the run."""
    waiting: deque[EvaluationJob] = field(default_factory=deque)
    """Jobs that have not started. After the run, these are the jobs that did not fit into the
    budget.
    """
    running: dict[JobId, EvaluationJob] = field(default_factory=dict)
    _patience: ReconnectLimit = field(default_factory=ReconnectLimit)

    def add(self, jobs: Iterable[EvaluationJob]) -> None:
        """Add jobs after all waiting jobs."""
        self.waiting.extend(jobs)

    def add_next(self, job: EvaluationJob) -> None:
        """Add a job before all waiting jobs."""
        self.waiting.appendleft(job)

    def run(self) -> Iterator[tuple[EvaluationJob, JobResult]]:
        """Yield each job with its result when it ends. The caller may add jobs during the run.

        Raises:
            UserError: a request is invalid, its key belongs to another request, or a job was
                deleted during the run.
            StoreUnavailable: Redis cannot be reached for longer than a `ReconnectLimit`.
        """
        while self.waiting or self.running:
            self.check()
            try:
                self._start_jobs()
                results = self._collect_results()
            except StoreUnavailable as error:
                self._patience.record_failure(error)
                time.sleep(RECONNECT_EVERY_S)
                continue
            self._patience.reset()
            if not self.running:
                return
            if not results:
                time.sleep(POLL_EVERY_S)
            for job, result in results:
                del self.running[JobId(result.job_id)]
                self.budget = self.budget.with_ended_job(result.job_id, _get_microusd(result))
                yield job, result

    def _start_jobs(self) -> None:
        """Start waiting jobs while there are free slots and money. Continue the jobs of an
        earlier run.

        Raises:
            UserError: see `run`.
        """
        while self.waiting and len(self.running) < self.budget.slots:
            job = self.waiting[0]
            job_id = self.client.store.job_ids.derive(job.request.tenant, job.key)
            submitted = self._find_submission(job, job_id)
            limit = submitted.limits.max_microusd if submitted else self.budget.next_limit
            if limit == 0:
                return
            if submitted is None:
                self._submit(job, limit)
            self.waiting.popleft()
            self.running[job_id] = job
            self.budget = self.budget.with_reserved_job(job_id, limit)

    def _submit(self, job: EvaluationJob, limit: int | None) -> None:
        """Submit a job with a cost limit."""
        limits = job.request.limits.model_copy(update={"max_microusd": limit})
        request = _leave_out_shared_runs(job.request)
        self.client.submit(replace(request, limits=limits, idempotency_key=job.key))

    def _collect_results(self) -> list[tuple[EvaluationJob, JobResult]]:
        """Return the ended jobs with their results.

        Raises:
            UserError: a job was deleted.
        """
        if not self.running:
            return []
        open_jobs: set[JobId] = set()
        for info in self.client.store.jobs.read(list(self.running)):
            if not info.status.has_ended:
                open_jobs.add(info.job_id)
        results: list[tuple[EvaluationJob, JobResult]] = []
        for job_id, job in self.running.items():
            if job_id not in open_jobs:
                results.append((job, self.client.result(job_id)))
        return results

    def _find_submission(self, job: EvaluationJob, job_id: JobId) -> JobSubmitted | None:
        """Return the first event of a job that an earlier run of this evaluation has
        submitted. None: there is no such job.

        Raises:
            UserError: that job has another request.
        """
        first = self.client.store.journal.read_first_events([job_id]).get(job_id)
        if not isinstance(first, JobSubmitted):
            return None
        submission = self.client.submission(_leave_out_shared_runs(job.request)).event
        if not submission.is_same_request(first.model_copy(update={"limits": submission.limits})):
            raise UserError(
                f"{job_id} has this name and another request: repeat the earlier command, or"
                " choose a new name"
            )
        return first


def _leave_out_shared_runs(request: Request) -> Request:
    """Return the request of a trial, which copies no result of an equal handoff: each trial is a
    sample.
    """
    return replace(request, shares_runs=False)


def _get_microusd(result: JobResult) -> int | None:
    """Return the cost of a job in micro-dollars; None if a price is unknown."""
    cost: float | None = result.usage["cost_usd"]
    if cost is None:
        return None
    return round(cost * MICROUSD)
