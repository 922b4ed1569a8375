"""Run the jobs of an evaluation within its budget."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from handoff_queue.shared.types.errors import StoreUnavailable, UserError
from handoff_queue.shared.types.events import JobSubmitted
from handoff_queue.shared.types.ids import JobId, job_id_for
from handoff_queue.shared.types.usage import MICROUSD
from handoff_queue.supervisor.client.client import Client, Request
from handoff_queue.supervisor.client.journal_follower import RECONNECT_EVERY_S, ReconnectLimit
from handoff_queue.supervisor.client.report import JobResult


@dataclass(frozen=True, slots=True)
class EvaluationBudget:
    """Budget of an evaluation. A job that starts reserves its limit, and the unspent part returns
    when the job ends. Amounts are in micro-dollars.
    """

    total: int | None = None
    """Whole budget; None: no limit."""
    slots: int = 1
    """Jobs at once."""
    spent: int = 0
    aside: Mapping[str, int] = field(default_factory=dict)
    """Reserved amounts by job."""

    @property
    def left(self) -> int | None:
        """Return the free amount; None: no limit."""
        if self.total is None:
            return None
        return max(0, self.total - self.spent - sum(self.aside.values()))

    @property
    def next_limit(self) -> int | None:
        """Return the limit of the next job: one slot's share of the free amount. None: no limit is
        needed. 0: the job cannot start now.
        """
        if self.total is None or self.left is None:
            return None
        return max(0, min(self.left, (self.total - self.spent) // self.slots))

    def began(self, job: str, limit: int | None) -> EvaluationBudget:
        """Return the budget after the start of a job.

        Args:
            limit: None reserves nothing.
        """
        if self.total is None or limit is None:
            return self
        return replace(self, aside={**self.aside, job: limit})

    def ended(self, job: str, cost: int | None) -> EvaluationBudget:
        """Return the budget after the end of a job.

        Args:
            cost: None if unknown; then its whole limit counts.
        """
        rest: dict[str, int] = {}
        for name, limit in self.aside.items():
            if name != job:
                rest[name] = limit
        return replace(
            self, aside=rest, spent=self.spent + (self.aside.get(job, 0) if cost is None else cost)
        )


LOOK_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class EvaluationJob:
    """A job to be, by its idempotency key. Its request names its mode, and its documents have
    been read; its limit in money is the runner's affair.
    """

    key: str
    request: Request

    @property
    def job_id(self) -> JobId:
        return job_id_for(self.request.tenant, self.key)


@dataclass(slots=True)
class JobRunner:
    """Begins errands, as many at once as the purse has slots, until there are none, or no
    money for one.
    """

    jobs: Client
    purse: EvaluationBudget
    check: Callable[[], None] = lambda: None
    """Called at each poll; it may raise to end the run."""
    waiting: deque[EvaluationJob] = field(default_factory=deque)
    """Jobs that have not started. The rest at the end did not fit into the budget."""
    running: dict[JobId, EvaluationJob] = field(default_factory=dict)
    _patience: ReconnectLimit = field(default_factory=ReconnectLimit)

    def add(self, errands: Iterable[EvaluationJob]) -> None:
        self.waiting.extend(errands)

    def add_next(self, errand: EvaluationJob) -> None:
        """Add a job before all waiting jobs."""
        self.waiting.appendleft(errand)

    def run(self) -> Iterator[tuple[EvaluationJob, JobResult]]:
        """Yield each job when it ends. The caller may add jobs during the run.

        Raises:
            UserError: a request is invalid, its key belongs to another request, or a job was
                deleted during the run.
            StoreUnavailable: Redis stays unreachable.
        """
        while self.waiting or self.running:
            self.check()
            try:
                self._begin()
                if self.running:
                    ended = self._ended()
                else:
                    ended = []
                results: list[tuple[EvaluationJob, JobResult]] = []
                for job_id in ended:
                    results.append((self.running[job_id], self.jobs.result(job_id)))
            except StoreUnavailable as error:
                self._patience.bear(error)
                time.sleep(RECONNECT_EVERY_S)
                continue
            self._patience.renew()
            if not self.running:
                return
            if not results:
                time.sleep(LOOK_EVERY_S)
            for errand, result in results:
                del self.running[errand.job_id]
                self.purse = self.purse.ended(errand.job_id, _microusd_of(result))
                yield errand, result

    def _begin(self) -> None:
        while self.waiting and len(self.running) < self.purse.slots:
            errand = self.waiting[0]
            there = self._there(errand)
            if there:
                limit = there.limits.max_microusd
            else:
                limit = self.purse.next_limit
            if limit == 0:
                return
            if there is None:
                limits = errand.request.limits.model_copy(update={"max_microusd": limit})
                self.jobs.submit(replace(errand.request, limits=limits, idempotency_key=errand.key))
            self.waiting.popleft()
            self.running[errand.job_id] = errand
            self.purse = self.purse.began(errand.job_id, limit)

    def _ended(self) -> list[JobId]:
        """Return the ended jobs, and the deleted jobs: reading their result raises."""
        going_on: set[JobId] = set()
        for standing in self.jobs.store.jobs.standings(list(self.running)):
            if not standing.status.ended:
                going_on.add(standing.job_id)
        job_ids: list[JobId] = []
        for job_id in self.running:
            if job_id not in going_on:
                job_ids.append(job_id)
        return job_ids

    def _there(self, errand: EvaluationJob) -> JobSubmitted | None:
        """Return the job of an earlier run of the same name; None if there is none yet.

        Raises:
            UserError: that job has another request.
        """
        first = self.jobs.store.journal.first_events([errand.job_id]).get(errand.job_id)
        if not isinstance(first, JobSubmitted):
            return None
        wanted = self.jobs.submission(errand.request).event
        if first.model_copy(update={"limits": wanted.limits}) != wanted:
            raise UserError(
                f"{errand.job_id} was begun under this name with another request: go on with the same command, or take a new name"
            )
        return first


def _microusd_of(result: JobResult) -> int | None:
    cost: float | None = result.usage["cost_usd"]
    if cost is None:
        return None
    return round(cost * MICROUSD)
