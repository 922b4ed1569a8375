"""A user whose jobs ask for the same step at the same time, and the promises about their shared
runs. The groups of jobs run one after the other, and each job has one agent.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import combinations

from handoff_queue.chaos.features import BATCH_DEADLINE_S
from handoff_queue.chaos.job_shapes import Shape
from handoff_queue.chaos.planned_jobs import (
    SHARING,
    TENANTS,
    TROUBLE_SHARE,
    PlannedJob,
    PlannedStep,
)
from handoff_queue.shared.types.errors import StoreError
from handoff_queue.shared.types.events import HandoffFinished
from handoff_queue.shared.types.handoff import HandoffResult, StopReason
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import Mode, Priority
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request

PAID_TWICE = "equal handoffs that ran at the same time, or copied a wrong result"
NOT_IN_BATCHES = "live calls of shared runs whose jobs have batches"
"""Names of the promises in the report."""


@dataclass(frozen=True, slots=True)
class EqualHandoff:
    """The handoff of one of several jobs with the same request."""

    group: str
    """Name of the request, which all jobs of the group have."""
    job_id: str
    status: str
    began_at: float
    """Unix seconds of its first claim."""
    ended_at: float
    output: str
    tokens: int
    """Tokens that its result and the budget of its job have."""
    copied_from: str | None
    """Job whose result it copied; None: it ran itself."""
    is_given_up: bool
    """True if kills have ended it."""
    batch_calls: int = 0
    """Its calls in batches."""
    live_calls: int = 0
    """Its calls outside of batches, if its job has batches and slack."""

    def overlaps(self, other: EqualHandoff) -> bool:
        """Return whether both ran at the same time."""
        return self.began_at < other.ended_at and other.began_at < self.ended_at


@dataclass(frozen=True, slots=True)
class EqualRecords:
    """All groups of equal handoffs of a run."""

    handoffs: Sequence[EqualHandoff]

    def find_breaches(self) -> dict[str, list[str]]:
        """Return the breaches of each promise: name of the promise -> one line each."""
        lines: list[str] = []
        for group in dict.fromkeys(handoff.group for handoff in self.handoffs):
            members = []
            for handoff in self.handoffs:
                if handoff.group == group:
                    members.append(handoff)
            lines += _find_faults(group, members)
        live: list[str] = []
        for handoff in self.handoffs:
            if handoff.status == "ok" and handoff.copied_from is None and handoff.live_calls:
                live.append(f"{handoff.group}: {handoff.job_id} made {handoff.live_calls}")
        return {PAID_TWICE: lines, NOT_IN_BATCHES: live}

    def collect_figures(self) -> dict[str, int]:
        """Return the amounts that a reader needs to judge the run: name -> number."""
        copies = sum(handoff.copied_from is not None for handoff in self.handoffs)
        batched_calls = sum(handoff.batch_calls for handoff in self.handoffs)
        return {
            "equal handoffs": len(self.handoffs),
            "copied results": copies,
            "calls of shared runs in batches": batched_calls,
        }


def _find_faults(group: str, members: Sequence[EqualHandoff]) -> Iterator[str]:
    """Yield the faults of one group."""
    runs = []
    for handoff in members:
        if handoff.copied_from is None:
            runs.append(handoff)
    for first, second in combinations(runs, 2):
        if first.overlaps(second):
            yield f"{group}: {first.job_id} and {second.job_id} ran at the same time"
    outputs = {}
    for run in runs:
        if run.status == "ok":
            outputs[run.job_id] = run.output
    for handoff in members:
        if handoff.copied_from is None:
            if handoff.status != "ok" and not handoff.is_given_up:
                yield f"{group}: {handoff.job_id} is {handoff.status}"
        elif outputs.get(handoff.copied_from) != handoff.output:
            yield f"{group}: {handoff.job_id} has no copy of the result of {handoff.copied_from}"
        elif handoff.tokens:
            yield f"{group}: {handoff.job_id} paid {handoff.tokens} tokens for a copy"


GROUPS = 8
"""Groups that a run starts, at most."""
MIN_GROUPS = 2
"""Groups of the shortest run: one with live calls, and one with batches."""
MEMBERS = 3
"""Jobs of a group."""
TURNS = 3
TAKES_S = (0.2, 0.5)
"""Durations of the calls in seconds."""


@dataclass(slots=True)
class EqualGroup:
    """Jobs with the same request."""

    planned: PlannedJob
    is_batched: bool
    """True if the calls of its jobs go into batches."""
    job_ids: list[JobId] = field(default_factory=list)

    def build_request(self, member: int) -> Request:
        """Return the request of a member. Only its idempotency key has the number."""
        dice = random.Random(self.planned.name)  # noqa: S311 - a seed is the point
        request = Request(
            self.planned.request,
            mode=Mode.SINGLE,
            specialists=(SHARING,),
            tenant=dice.choice(TENANTS),
            idempotency_key=f"{self.planned.name} {member}",
        )
        if self.is_batched:
            return replace(request, priority=Priority.BATCH, deadline_s=BATCH_DEADLINE_S)
        return request


@dataclass(slots=True)
class EqualUser:
    """Starts groups of equal jobs. Call `advance` repeatedly."""

    client: Client
    seed: int
    group_count: int = GROUPS
    """Number of groups to start."""
    _groups: list[EqualGroup] = field(default_factory=list)
    _ended_groups: int = 0
    """Number of groups that have ended."""

    def __post_init__(self) -> None:
        for number in range(GROUPS):
            is_batched = number % 2 == 1
            planned = PlannedJob(
                f"{self.seed}-equal-{number}",
                Shape.ALONE,
                (PlannedStep("answer", SHARING, turns=TURNS),),
                self.seed,
                mode=Mode.SINGLE,
                takes_from=TAKES_S,
                is_uncounted=True,
                trouble_share=0.0 if is_batched else TROUBLE_SHARE,
            )
            self._groups.append(EqualGroup(planned, is_batched))

    @property
    def jobs(self) -> list[PlannedJob]:
        """The plan of each group."""
        return [group.planned for group in self._groups]

    @property
    def is_over(self) -> bool:
        """True if no group runs, and none is to start."""
        return self._ended_groups >= self.group_count

    def finish(self) -> None:
        """Start no further group, after one with live calls and one with batches."""
        if not self.is_over:
            started_groups = self._ended_groups + bool(self._groups[self._ended_groups].job_ids)
            self.group_count = max(MIN_GROUPS, started_groups)

    def advance(self) -> None:
        """Submit the next job of a group, or look whether the group has ended.

        Raises:
            StoreError: Redis cannot be reached.
        """
        if self.is_over:
            return
        group = self._groups[self._ended_groups]
        while len(group.job_ids) < MEMBERS:
            with suppress(StoreError):
                group.job_ids.append(self.client.submit(group.build_request(len(group.job_ids))))
                continue
            return  # the next call submits the same job
        job_infos = self.client.store.jobs.read(group.job_ids)
        if all(info.status.has_ended for info in job_infos):
            self._ended_groups += 1

    def collect_records(self) -> EqualRecords:
        """Return the handoffs of all groups that have ended."""
        handoffs: list[EqualHandoff] = []
        for group in self._groups[: self._ended_groups]:
            for job_id in group.job_ids:
                handoffs += self._read_handoffs(group, job_id)
        return EqualRecords(handoffs)

    def _read_handoffs(self, group: EqualGroup, job_id: JobId) -> list[EqualHandoff]:
        store = self.client.store
        handoffs: list[EqualHandoff] = []
        for recorded in store.journal.read(job_id):
            event = recorded.event
            if not isinstance(event, HandoffFinished):
                continue
            info = store.jobs.read_handoffs(job_id, [event.handoff_id])[event.handoff_id]
            digest = event.result.digest
            text = store.payloads.get(job_id, (), results=[digest])[digest]
            handoffs.append(
                EqualHandoff(
                    group.planned.name,
                    job_id,
                    event.status.value,
                    info.started_at or 0.0,
                    info.finished_at or 0.0,
                    str(HandoffResult.from_json(text).output),
                    event.usage.total_tokens + info.input_tokens + info.output_tokens,
                    event.shared.job_id if event.shared else None,
                    event.stop_reason is StopReason.TOO_MANY_CLAIMS,
                    batch_calls=event.usage.batch_calls,
                    live_calls=event.turns - event.usage.batch_calls if group.is_batched else 0,
                )
            )
        return handoffs
