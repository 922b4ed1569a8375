"""All failpoints on one fleet with jobs on it all the while: arm, wait until somebody comes by, see to it that somebody does."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from chaos.faults import EVERYBODY, Fault, Strike
from chaos.fleet import REDIS, SUPERVISOR, WORKER, points_in
from chaos.plan import TROUBLE_SHARE, PlannedJob, Shape, jobs_of
from chaos.stage import LOOK_EVERY_S, Stage, Tell
from chaos.windows import CLIENT, Blow, Case, Need
from shared.failpoints import FAILPOINTS
from shared.ledger.connection import in_our_words
from shared.wire.errors import LedgerError
from shared.wire.ids import job_id_for
from shared.wire.names import SUBMISSIONS_QUEUE

ARMED_AT_ONCE = 5
JOBS_AT_ONCE = 8
CROWD = 24
"""Jobs at once where supervisors are to run out of slots to think: three of them have two each."""
OFTEN = 0.3
"""Of a job's calls something is wrong with, where the provider is to turn many away."""
GIVEN_UP_AFTER_S = 120.0
"""Nobody has come by, on a machine that has other things to do."""
STOPPED_LEASES = 1.6
"""Longer than a lease and the sweep after it, shorter than the watchdog's patience."""
NUDGE_EVERY_S = 1.5
COMMAND_WITHIN_S = 60.0
PAUSED = "planner"
"""The role that is paused, and resumed: every job needs it."""


@dataclass(slots=True)
class Armed:
    """A case that waits for somebody to come by."""

    case: Case
    since: float
    command: subprocess.Popen[bytes] | None = None
    job: PlannedJob | None = None
    """What the command is about."""


@dataclass(slots=True)
class Trial:
    """Call `run`; then `strikes` is what has happened, and `not_reached` what has not."""

    on: Stage
    seed: int
    tell: Tell
    strikes: list[Strike] = field(default_factory=list)
    not_reached: list[Case] = field(default_factory=list)
    _armed: list[Armed] = field(default_factory=list)
    _jobs: Iterator[PlannedJob] = field(init=False)
    _dice: random.Random = field(init=False)
    _nudged_at: float = 0.0
    _stopped: dict[int, float] = field(default_factory=dict)
    """Pid -> when it is to go on; monotonic."""

    def run(self, cases: Sequence[Case]) -> None:
        """Try all of them, several at once."""
        points_in(self.on.fleet.folder, CLIENT).mkdir(parents=True, exist_ok=True)
        self._jobs = _endless(self.seed)
        self._dice = random.Random(f"{self.seed} trial")  # noqa: S311 - a seed is the point
        waiting, told_at = list(cases), time.monotonic()
        while waiting or self._armed or self._stopped:
            if len(self.on.open) < (CROWD if self._needs(Need.CROWD) else JOBS_AT_ONCE):
                share = OFTEN if self._needs(Need.REFUSED) else TROUBLE_SHARE
                self.on.submit(replace(next(self._jobs), trouble_share=share))
            if case := self._next(waiting):
                waiting.remove(case)
                self._arm(case)
            self._nudge()
            self._wake()
            self._armed = [one for one in self._armed if not self._is_over(one)]
            self.on.look()
            if time.monotonic() - told_at > 10:
                told_at = time.monotonic()
                self.tell(f"{len(cases) - len(waiting) - len(self._armed)} of {len(cases)} failpoints")
            time.sleep(LOOK_EVERY_S)

    def _next(self, waiting: Sequence[Case]) -> Case | None:
        """One that can be armed now: somebody must be left to come by, and be there again before the next blow."""
        if len(self._armed) >= ARMED_AT_ONCE or not self.on.fleet.is_ready(REDIS):
            return None
        armed = [one.case for one in self._armed]
        spare = {kind: len(self.on.fleet.ready(kind)) - 1 - sum(case.kind == kind for case in armed) for kind in (WORKER, SUPERVISOR)}
        for case in waiting:
            taken = any((case.kind, case.point) == (other.kind, other.point) for other in armed)
            is_first_of_its_need = case.need.is_met_by_jobs or all(other.need is not case.need for other in armed)
            is_only_redis = case.blow is not Blow.REDIS or all(other.blow is not Blow.REDIS for other in armed)
            if not taken and is_first_of_its_need and is_only_redis and spare.get(case.kind, 1) > 0:
                return case
        return None

    def _arm(self, case: Case) -> None:
        order = f"kill {self.on.fleet.look()[REDIS]}" if case.blow is Blow.REDIS else case.blow.value
        (self.on.fleet.points(case.kind) / case.point).write_text(order)
        armed = Armed(case, time.monotonic())
        if case.need in (Need.SUBMIT, Need.CANCEL, Need.RESUME):
            self._begin_command(armed)
        self._armed.append(armed)

    def _is_over(self, armed: Armed) -> bool:
        if armed.command is not None and armed.command.poll() is None:
            return False
        folder, case = self.on.fleet.points(armed.case.kind), armed.case
        taken = next(folder.glob(f"{case.point}@*"), None)
        if taken is not None:
            pid = int(taken.name.partition("@")[2])
            self.strikes.append(self._strike(case, pid, taken.stat().st_ctime))
            if case.blow is Blow.STOP:
                self._stopped[pid] = time.monotonic() + self._stop_s
            taken.unlink()
        elif time.monotonic() - armed.since < GIVEN_UP_AFTER_S:
            if armed.command is not None:  # it did not come by: Redis was away, or its job had ended before it was there
                self._end_command(armed)
                self._begin_command(armed)
            return False
        else:
            self.not_reached.append(case)
            (folder / case.point).unlink(missing_ok=True)
        if armed.job is not None:
            self._end_command(armed)
        return True

    def _strike(self, case: Case, pid: int, at: float) -> Strike:
        self.on.fleet.look()
        name = self.on.fleet.names.get(pid, case.kind)
        match case.blow:
            case Blow.REDIS:
                return Strike(Fault.KILL_REDIS, EVERYBODY, at, f"{case.point} of {name}")
            case Blow.DROP:
                return Strike(Fault.DROP, name, at, case.point)
            case Blow.STOP:
                return Strike(Fault.STOP, name, at, case.point, lasts_s=self._stop_s)
            case Blow.KILL:
                return Strike(Fault.KILL_SUPERVISOR if case.kind == SUPERVISOR else Fault.KILL_WORKER, name, at, case.point)

    @property
    def _stop_s(self) -> float:
        return self.on.fleet.size.lease_s * STOPPED_LEASES

    def _wake(self) -> None:
        """SIGCONT for those that were stopped long enough."""
        for pid in [pid for pid, until in self._stopped.items() if time.monotonic() >= until]:
            del self._stopped[pid]
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _needs(self, need: Need) -> bool:
        return any(one.case.need is need for one in self._armed)

    def _nudge(self) -> None:
        """What makes somebody come by."""
        needs = {one.case.need: one.case.kind for one in self._armed}
        if Need.LOSE in needs:
            with suppress(LedgerError), in_our_words():
                self.on.fleet.jobs.ledger.connection.redis.delete(SUBMISSIONS_QUEUE)
        if Need.END in needs and time.monotonic() - self._nudged_at > NUDGE_EVERY_S:
            self._nudged_at = time.monotonic()
            name = self._dice.choice([*sorted(self.on.fleet.ready(needs[Need.END])), ""])
            if name and self.on.fleet.signal(name, signal.SIGTERM):
                self.strikes.append(Strike(Fault.END, name, time.time()))

    def _begin_command(self, armed: Armed) -> None:
        job = next(job for job in self._jobs if job.shape is Shape.PARALLEL)
        armed.job = job
        if armed.case.need is Need.SUBMIT:
            self.on.model.add([job])
            armed.command = self._command(self._words(armed, job), armed.case.kind)
            return
        if armed.case.need is Need.CANCEL:
            armed.job = job = PlannedJob(job.name, Shape.CANCELLED, job.steps, job.seed)
        while armed.case.need is Need.RESUME and not self._is_paused():
            time.sleep(LOOK_EVERY_S)
        while not self.on.submit(job):
            time.sleep(LOOK_EVERY_S)
        armed.command = self._command(self._words(armed, job), armed.case.kind)

    def _is_paused(self) -> bool:
        """A role is, for somebody to resume it; False: Redis is away."""
        with suppress(LedgerError):
            self.on.fleet.jobs.pause(PAUSED)
            return True
        return False

    def _end_command(self, armed: Armed) -> None:
        """A person whose command failed types it again."""
        job, command = armed.job, armed.command
        assert job is not None
        assert command is not None
        code, until = command.returncode, time.monotonic() + COMMAND_WITHIN_S
        while code and time.monotonic() < until:
            code = self._command(self._words(armed, job), None).wait()
        if armed.case.need is Need.SUBMIT:
            self.on.adopt(job, job_id_for("default", job.name))

    def _words(self, armed: Armed, job: PlannedJob) -> list[str]:
        """What a person types."""
        match armed.case.need:
            case Need.SUBMIT:
                return self._submission(job)
            case Need.CANCEL:
                return ["cancel", self.on.ids[job.name]]
            case _:
                return ["resume", PAUSED]

    def _submission(self, job: PlannedJob) -> list[str]:
        documents = self.on.fleet.folder / "documents"
        if not documents.exists():
            documents.mkdir()
            (documents / "note.md").write_text("# A note\n\nSo it is.\n")
        return ["submit", job.request, "--idempotency-key", job.name, "--docs", str(documents)]

    def _command(self, arguments: list[str], kind: str | None) -> subprocess.Popen[bytes]:
        """`handoff ARGUMENTS`. `kind`: whose failpoints it has."""
        points = {FAILPOINTS: str(points_in(self.on.fleet.folder, kind))} if kind else {}
        environment = {**os.environ, "HANDOFF_REDIS_URL": self.on.fleet.url, "HANDOFF_OFFLINE": "true", "HANDOFF_MODE": "team", **points}
        command = [sys.executable, "-P", "-m", "supervisor.cli.main", *arguments]
        return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _endless(seed: int) -> Iterator[PlannedJob]:
    number = 0
    while True:
        yield from jobs_of(seed, 1, first=number)
        number += 1
