"""Where a run takes place: a fleet, its model, the jobs that were given to it, and what the ledger says of them when all is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from chaos.books import Books
from chaos.ends import Ended, Story
from chaos.faults import Strike, with_outages
from chaos.fleet import Fleet, Member, Size, running_fleet
from chaos.killer import QUEUES
from chaos.leaks import left_behind
from chaos.model import Model
from chaos.plan import CallKey, PlannedJob
from shared.ledger.connection import in_our_words
from shared.local.run_directory import RunDirectory
from shared.wire.checkpoints import Replied
from shared.wire.errors import LedgerError
from shared.wire.events import HandoffFinished, JobEnded, JobStatus, Recorded
from shared.wire.ids import HandoffId, JobId
from shared.wire.limits import JobLimits
from shared.wire.names import UNROUTED_QUEUE
from supervisor.client import Request

LOOK_EVERY_S = 0.05
SETTLE_S = 180.0
"""After the last fault: what has not ended by then is lost."""
TIDY_WITHIN_S = 30.0
"""After the last job's end: what sweepers and late messages still take away."""

Tell = Callable[[str], None]
Kind = TypeVar("Kind")


@dataclass(slots=True)
class Stage:
    """A fleet, its model, and the jobs that were given to it."""

    fleet: Fleet
    model: Model
    jobs: dict[str, PlannedJob] = field(default_factory=dict)
    ids: dict[str, JobId] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)
    stored_at: dict[CallKey, float] = field(default_factory=dict)
    """When the ledger was first seen to have the reply to a call."""
    answered_at: list[float] = field(default_factory=list)
    """When Redis was asked something, and did answer."""

    def submit(self, job: PlannedJob) -> bool:
        """Enqueue it; False: Redis is away, so try again. The same job twice is one job."""
        self.model.add([job])
        limits = JobLimits(max_turns=job.max_turns, max_tokens=job.max_tokens, max_microusd=job.max_microusd)
        request = Request(job.request, limits=limits, model=job.model, idempotency_key=job.name)
        try:
            job_id = self.fleet.jobs.submit(request)
        except LedgerError:
            return False
        self.adopt(job, job_id)
        return True

    def adopt(self, job: PlannedJob, job_id: JobId) -> None:
        """It is one of ours from now on, whoever has submitted it."""
        self.ids[job.name], self.jobs[job.name] = job_id, job
        self.open.add(job.name)

    def look(self) -> None:
        """See which jobs have ended, what is stored of the others, and whether Redis is there."""
        names, asked_at = sorted(self.open), time.time()
        try:
            with in_our_words():
                self.fleet.jobs.ledger.connection.redis.ping()
            self.answered_at.append(asked_at)
            self._see_replies()
            standings = {one.job_id: one for one in self.fleet.jobs.ledger.jobs.standings([self.ids[name] for name in names])}
        except LedgerError:
            return
        for name in names:
            standing = standings.get(self.ids[name])
            if standing is not None and JobStatus(standing.status).ended:
                self.open.discard(name)

    def settle(self) -> None:
        """Wait for the end of every job, at most as long as a job that is not lost takes."""
        until = time.monotonic() + SETTLE_S
        while self.open and time.monotonic() < until:
            self.look()
            time.sleep(LOOK_EVERY_S)

    def close(self, strikes: Sequence[Strike], not_reached: Sequence[str] | None = None, not_happened: Sequence[str] = ()) -> Books:
        """The books, when everything has settled. `not_reached`, `not_happened`: as there."""
        rest = self._tidy(was_struck=bool(strikes))
        stories = {name: _story(self.fleet, self.ids[name]) for name in self.jobs}
        jobs, calls, struck = list(self.jobs.values()), list(self.model.calls), with_outages(strikes, self.answered_at)
        return Books(jobs, calls, struck, stories, self.fleet.size.lease_s, rest, not_reached, not_happened, self.stored_at)

    def _see_replies(self) -> None:
        """Which calls' replies the ledger has by now."""
        called = sorted({(call.key.job, call.key.handoff) for call in list(self.model.calls)})
        for name in self.open:
            turns = self.fleet.jobs.ledger.claims.turns(self.ids[name], [HandoffId(handoff) for job, handoff in called if job == name])
            for handoff, checkpoints in turns.items():
                replies = sum(isinstance(one, Replied) for one in checkpoints)
                for turn in range(1, replies + 1):
                    self.stored_at.setdefault(CallKey(name, handoff, turn), time.time())

    def _tidy(self, *, was_struck: bool) -> list[str]:
        until = time.monotonic() + TIDY_WITHIN_S
        while True:
            with in_our_words():
                rest = left_behind(self.fleet.jobs.ledger.connection.redis, (*QUEUES, UNROUTED_QUEUE), was_struck=was_struck)
            if not rest or time.monotonic() > until:
                return rest
            time.sleep(LOOK_EVERY_S * 10)


@contextmanager
def stage(size: Size, members: Sequence[Member] = ()) -> Iterator[Stage]:
    """Everything that a run needs, in a private folder; gone when it ends. `members`: in place of those of this size."""
    with RunDirectory() as folder, Model() as model, running_fleet(folder.path, size, model.url, members) as fleet:
        yield Stage(fleet, model)


def _story(fleet: Fleet, job_id: JobId) -> Story:
    events = fleet.jobs.ledger.journal.read(job_id)
    if not events:
        return Story("")
    finished: dict[str, tuple[float, ...]] = {}
    results: dict[str, Ended] = {}
    for at, event in _of(events, HandoffFinished):
        finished[event.handoff_id] = (*finished.get(event.handoff_id, ()), at)
        results[event.handoff_id] = Ended(event.status.value, event.stop_reason.value)
    ends = _of(events, JobEnded)
    status, reason = (ends[-1][1].status.value, ends[-1][1].reason or "") if ends else ("running", "")
    notes = () if status == JobStatus.OK.value else fleet.jobs.result(job_id).notes
    why = "; ".join((status, *sorted({end.stop_reason for end in results.values()}), *notes, reason))
    return Story(status, tuple(at for at, _ in ends), finished, results, reason, why)


def _of(events: Iterable[Recorded], kind: type[Kind]) -> list[tuple[float, Kind]]:
    return [(one.at, one.event) for one in events if isinstance(one.event, kind)]
