"""Forks of ended jobs in a run: the user who types `handoff fork`, and the promises about forks.

The first command is often killed, and the user types it again with the same idempotency key.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from handoff_queue.chaos.fleet import Fleet, arm, get_points_folder
from handoff_queue.chaos.model_answers import build_task
from handoff_queue.chaos.planned_jobs import PlannedJob
from handoff_queue.shared.local.fork_server import ForkedProcess
from handoff_queue.shared.observability.failpoints import AFTER, BEFORE
from handoff_queue.shared.store.job_filter import JobFilter
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.errors import StoreUnavailable, UserError
from handoff_queue.shared.types.events import Event, HandoffFinished, JobEnded, JobSubmitted
from handoff_queue.shared.types.ids import JobId, parse_step_id
from handoff_queue.shared.types.job_events import Fork
from handoff_queue.shared.types.names import ROLES
from handoff_queue.supervisor.client.json_forms import encode_event

WRONG_FORKS = "forks that were made twice, or changed their job"
"""Name of the promise in the report."""


@dataclass(frozen=True, slots=True)
class ForkRecord:
    """A fork whose command was typed until it succeeded."""

    fork: str
    """Name of the fork."""
    commands: int
    """Number of times that the command was typed."""
    killed: int
    """Number of these commands that were killed."""
    refusals: Sequence[int] = ()
    """Exit codes of commands that were refused for another reason than an unreachable Redis."""
    job_ids: Sequence[str] = ()
    """Ids of the jobs in the store that are forks of the same job."""
    before: Sequence[str] = ()
    """Events of the forked job before the first command, as JSON."""
    after: Sequence[str] = ()
    """Its events at the end of the run."""
    results: Mapping[str, str] | None = None
    """Digests of the results of the forked job: step -> digest."""
    kept_results: Mapping[str, str] | None = None
    """Digests of the results that the fork has kept."""

    def find_breaches(self) -> Iterator[str]:
        """Yield one line for each fault."""
        for code in self.refusals:
            yield f"{self.fork}: the command ended with {code}"
        if len(self.job_ids) != 1:
            yield f"{self.fork}: {len(self.job_ids)} forks ({', '.join(self.job_ids)})"
        if list(self.before) != list(self.after):
            yield f"{self.fork}: its job had {len(self.before)} events, and has {len(self.after)}"
        if self.results != self.kept_results:
            yield f"{self.fork}: kept {self.kept_results}, and its job has {self.results}"


@dataclass(frozen=True, slots=True)
class ForkRecords:
    """All forks of a run."""

    forks: Sequence[ForkRecord]

    def find_breaches(self) -> dict[str, list[str]]:
        """Return the breaches of each promise: name of the promise -> one line each."""
        lines: list[str] = []
        for fork in self.forks:
            lines += fork.find_breaches()
        return {WRONG_FORKS: lines}

    def collect_figures(self) -> dict[str, int]:
        """Return the amounts that a reader needs to judge the run: name -> number."""
        return {
            "forks": len(self.forks),
            "commands of forks": sum(fork.commands for fork in self.forks),
            "killed": sum(fork.killed for fork in self.forks),
        }


POINTS = ("", *map(".".join, product(("script.commit", "publish.submissions"), (BEFORE, AFTER))))
"""Failpoints at which the first command is killed; '': it is not killed."""
MAX_FORKS = 100
"""Most jobs with the same text."""


@dataclass(slots=True)
class TypedFork:
    """A fork, and the commands that were typed for it."""

    record: ForkRecord
    job_id: JobId
    """The forked job."""
    step: str
    """The step that runs again."""
    command: subprocess.Popen[bytes] | ForkedProcess


@dataclass(slots=True)
class ForkUser:
    """Types the commands. No function waits for a command."""

    fleet: Fleet
    store: Store
    _typed: dict[str, TypedFork] = field(default_factory=dict)
    """Forks by name."""

    def fork(self, job: PlannedJob, of: JobId) -> JobId:
        """Return the id of a fork whose command has succeeded.

        Args:
            job: the fork as planned.
            of: the job that is forked.

        Raises:
            StoreUnavailable: the command has not succeeded yet. Call this function again.
            UserError: the job did not end as planned.
        """
        typed_fork = self._typed.get(job.name)
        if typed_fork is None:
            before = self._read_events(of)
            if not _is_ok(before):
                raise UserError(f"{of} did not end as planned")
            record = ForkRecord(job.name, 1, 0, before=_as_json(before))
            dice = random.Random(f"{job.seed} {job.name} command")  # noqa: S311
            command = self._start_command(job, of, kill_at=dice.choice(POINTS))
            self._typed[job.name] = TypedFork(record, of, job.steps[0].id, command)
        elif (code := typed_fork.command.poll()) == 0:
            return self.store.job_ids.derive(job.tenant, job.name)
        elif code is not None:
            typed_fork.record = _with_code(typed_fork.record, code)
            typed_fork.command = self._start_command(job, of)
        raise StoreUnavailable("the command has not succeeded yet")

    def collect_records(self) -> ForkRecords:
        """Return all forks whose command was typed."""
        records: list[ForkRecord] = []
        for typed_fork in self._typed.values():
            after = self._read_events(typed_fork.job_id)
            forks = self._find_forks(typed_fork.job_id)
            kept_results: dict[str, str] = {}
            for fork in forks.values():
                kept_results = {each.step: each.result.digest for each in fork.kept}
            records.append(
                replace(
                    typed_fork.record,
                    job_ids=sorted(forks),
                    after=_as_json(after),
                    kept_results=kept_results,
                    results=_list_results(after, without=typed_fork.step),
                )
            )
        return ForkRecords(records)

    def _start_command(
        self, job: PlannedJob, of: JobId, kill_at: str = ""
    ) -> subprocess.Popen[bytes] | ForkedProcess:
        points = get_points_folder(self.fleet.folder, job.name)
        points.mkdir(parents=True, exist_ok=True)
        if kill_at:
            arm(points, kill_at, "kill")
        (step,) = job.steps
        words = ["fork", of, "--from", step.id, "--task", build_task(job, step)]
        return self.fleet.start_user_command([*words, "--idempotency-key", job.name], points)

    def _read_events(self, job_id: JobId) -> list[Event]:
        return [recorded.event for recorded in self.store.journal.read(job_id)]

    def _find_forks(self, job_id: JobId) -> Mapping[str, Fork]:
        """Return the forks of a job in the store, by id."""
        (info,) = self.store.jobs.read([job_id])
        page, _ = self.store.jobs.read_page(JobFilter(text=info.title), MAX_FORKS, "")
        forks: dict[str, Fork] = {}
        for candidate, event in self.store.journal.read_first_events(page).items():
            if isinstance(event, JobSubmitted) and event.fork and event.fork.job_id == job_id:
                forks[candidate] = event.fork
        return forks


def _with_code(record: ForkRecord, code: int) -> ForkRecord:
    """Return the record after a command that did not succeed.

    Args:
        code: exit code of the command; negative: it was killed.
    """
    refusals = record.refusals
    if 0 < code != StoreUnavailable.exit_code:
        refusals = (*refusals, code)
    return replace(
        record,
        commands=record.commands + 1,
        killed=record.killed + (code < 0),
        refusals=refusals,
    )


def _is_ok(events: list[Event]) -> bool:
    return any(isinstance(event, JobEnded) and event.status == "ok" for event in events)


def _as_json(events: list[Event]) -> list[str]:
    return [encode_event(event) for event in events]


def _list_results(events: list[Event], without: str) -> dict[str, str]:
    """Return the digests of the last results of the steps of a job: step -> digest.

    Args:
        without: the step that the fork repeats.
    """
    digests: dict[str, str] = {}
    for event in events:
        if isinstance(event, HandoffFinished):
            step = parse_step_id(event.handoff_id)
            if step != without and step not in ROLES:
                digests[step] = event.result.digest
    return digests
