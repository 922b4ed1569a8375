"""The test bed of a run: a fleet, its model, the system on it, and its jobs. At the end, the counts
of `/metrics` are compared with the jobs that the store has.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic

from handoff_queue.chaos.expected_outcomes import StoredJob
from handoff_queue.chaos.faults import Strike, with_outages
from handoff_queue.chaos.fleet import Fleet, Size, running_fleet
from handoff_queue.chaos.invariants import Handoff, RunRecords
from handoff_queue.chaos.killer import QUEUES
from handoff_queue.chaos.leaks import find_leaks
from handoff_queue.chaos.model_server import ChaosModel
from handoff_queue.chaos.planned_jobs import CallKey, PlannedJob
from handoff_queue.chaos.system import Kind, Made_co
from handoff_queue.chaos.unwanted_calls import SeenClaim
from handoff_queue.shared.local.fork_server import ForkServer
from handoff_queue.shared.local.run_directory import RunDirectory
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.redis.connection import translate_errors
from handoff_queue.shared.types.errors import StoreError, UserError
from handoff_queue.shared.types.names import UNROUTED_QUEUE

CHECK_EVERY_S = 0.05
SETTLE_S = 180.0
"""Seconds after the last fault after which a job that has not ended counts as lost."""
TIDY_WITHIN_S = 30.0
"""Seconds after the last job's end for sweepers and late messages to clean up."""

Progress = Callable[[str], None]
TALLIED = ("issued", "ok", "partial", "needs_input", "failed", "dropped")
"""The numbers in the field `tally` of a job's hash, in order."""
SPENT = {
    "turns": "model_calls",
    "input_tokens": "tokens input",
    "output_tokens": "tokens output",
    "usd": "cost_usd",
}
"""Field of a job's budget -> the same amount in `counted`."""


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
            names = {running.name for running in self._find_working_jobs()}
            for key in self.system.find_stored_calls(names, call_keys):
                self.stored_at.setdefault(key, time.time())
            self._record_claims()
            self.system.act_as_users([self.jobs[name] for name in self.open], call_keys)
            self._record_ends()
            self.open -= self.system.find_stuck(self.open)
        except StoreError:
            return

    def _find_working_jobs(self) -> list[PlannedJob]:
        """Return jobs that may have a running handoff, including children."""
        planned_jobs: list[PlannedJob] = []
        for name in self.open:
            planned_jobs += self.jobs[name].family
        return planned_jobs

    def _record_claims(self) -> None:
        for whose, (pid, count) in self.system.find_holders(self._find_working_jobs()).items():
            process, claims = self.fleet.get_name(pid), self.claims_seen.setdefault(whose, [])
            if not claims or (claims[-1].process, claims[-1].count) != (process, count):
                claims.append(SeenClaim(process, count, time.time()))

    def _record_ends(self) -> None:
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
                job_records[member.name] = self.system.read_job_record(member.name)
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
            api=self.system.collect_api_records(list(self.model.uncounted)),
            features=self.system.collect_feature_records(
                list(self.jobs.values()), list(self.model.calls)
            ),
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


def find_wrong_counts(client: Any) -> list[str]:
    """Return one line for each count that is not the sum over all jobs. No job may have been
    deleted, and none may be running.
    """
    counts, job_sums = read_counts(client), sum_jobs(client)
    lines: list[str] = []
    for name in sorted(job_sums.keys() | counts.keys()):
        if counts[name] != job_sums[name]:
            lines.append(
                f"{keys.METRICS}: {counts[name]} {name}, and the jobs have {job_sums[name]}"
            )
    daily_sums = sum_days(client)
    for name in SPENT.values():
        if daily_sums[name] != job_sums[name]:
            lines.append(f"{keys.spending('*')}: {daily_sums[name]} {name}, not {job_sums[name]}")
    return lines


def sum_days(client: Any) -> Counter[str]:
    """Return the calls, tokens and money that the days have counted for the money page."""
    names = {"calls": "model_calls", "usd": "cost_usd"}
    names |= {"input": "tokens input", "output": "tokens output"}
    sums = Counter[str]()
    for key in client.scan_iter(match=keys.spending("*"), count=1_000):
        for name_of_day, value in client.hgetall(key).items():
            name = names.get(name_of_day.decode().partition("\t")[0])
            if name:
                sums[name] += int(value)
    return sums


def read_counts(client: Any) -> Counter[str]:
    """Return the counts of ended jobs, handoffs by outcome, calls, tokens and money."""
    counts = Counter[str]()
    for label, value in client.hgetall(keys.METRICS).items():
        name, *labels = label.decode().split("\t")
        if name in ("handoffs", "tokens"):
            counts[f"{name} {labels[-1]}"] += int(value)
        elif name in ("model_calls", "cost_usd", "jobs_submitted"):
            counts[name] += int(value)
    return counts


def sum_jobs(client: Any) -> Counter[str]:
    """Return the same numbers from the progress of the jobs. A child's calls are in the budget of
    its parent.
    """
    submitted = {member.decode() for member in client.zrange(keys.JOBS, 0, -1)}
    sums = Counter(jobs_submitted=len(submitted))
    for name in client.scan_iter(match=f"{keys.PREFIX}{{*}}:progress", count=1_000):
        match = re.fullmatch(r"handoff:\{([^}]+)\}:progress", name.decode())
        if match is None:
            continue
        tally, *amounts = client.hmget(name, "tally", *SPENT)
        for outcome, number in zip(TALLIED, (tally or b"").split(), strict=False):
            if outcome != "issued":
                sums[f"handoffs {outcome}"] += int(number)
        if match[1] in submitted:
            for amount, value in zip(SPENT.values(), amounts, strict=True):
                sums[amount] += int(value or 0)
    return sums
