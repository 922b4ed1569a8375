"""The reasons why a job waits: a process is not running, a role is paused, or a person must
answer.

The reasons are computed when a caller asks, and are not stored. A process that dies counts as
missing when its announcement expires (`ANNOUNCED_FOR_S`). A handoff that the process had
claimed is in its queue again when its lease has expired, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from handoff_queue.shared.store.jobs import JobStanding
from handoff_queue.shared.store.pauses import Pause
from handoff_queue.shared.store.presence import Presence
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.names import ROLES, SUPERVISOR_QUEUE

LOOK_EVERY_S = 2.0
"""Seconds between two checks of a watcher. One check is one round trip."""
_NUMBER = re.compile(r"([0-9]+)")
MOST_NAMED = 5
"""Steps that a line names. The line gives the number of the other steps."""


@dataclass(frozen=True, slots=True)
class MissingRole:
    """A process or a person that a job needs, and that is absent or paused."""

    whom: str
    """The missing process in words, such as `a worker of ...`."""
    fix: str
    """The command that ends the wait."""
    steps: tuple[str, ...] = ()
    """The steps that wait. Empty: the whole job waits."""
    fix_in_place: str = ""
    """The command that ends the wait on the private Redis of `handoff run`. Empty: the same
    command.
    """
    are_all: bool = True
    """False if more steps may wait than were counted."""

    def __str__(self) -> str:
        match self.steps:
            case ():
                waits = "the job waits"
            case (step,):
                waits = f"step {step} waits"
            case _:
                named = sorted(self.steps, key=_in_order)[:MOST_NAMED]
                rest = "at least "
                if self.are_all:
                    rest = ""
                more = ""
                if len(named) < len(self.steps):
                    more = f" and {rest}{len(self.steps) - len(named):,} more"
                waits = f"steps {', '.join(named)}{more} wait"
        return f"{waits} for {self.whom}: {self.fix}"


def missing(job: JobStanding, there: Presence) -> tuple[MissingRole, ...]:
    """Return the processes that the job needs now, and that are absent or paused. Pure."""
    if job.status.ended:
        return ()
    if SUPERVISOR_QUEUE in there.queues:
        reasons = []
    else:
        reasons = [_process("a supervisor", "supervisor")]
    reasons += answers_to_wait_for(job)
    waiting: dict[str, list[str]] = {}
    for handoff_id, specialist in sorted(there.unclaimed.get(job.job_id, {}).items()):
        waiting.setdefault(specialist, []).append(handoff_id.rpartition(".")[0])
    for whom, steps in sorted(waiting.items()):
        reasons.append(
            _paused(whom, there.paused[whom], *steps)
            if whom in there.paused
            else _worker_of((whom,), *steps)
        )
    if job.status is JobStatus.QUEUED and not _may_be_planned(job, there):
        reasons.append(
            _worker_of(job.specialists)
            if job.specialists
            else _process("a worker of any specialist", "worker --all")
        )
    return tuple(reasons)


def answers_to_wait_for(job: JobStanding) -> list[MissingRole]:
    """Return the questions of the job that a person must answer. Pure."""
    if job.status is not JobStatus.WAITING:
        return []
    if job.asked_at is None:
        since = ""
    else:
        since = f" since {_utc(job.asked_at)}"
    questions = []
    if job.asks:
        decision = f"a decision by a person{since}, because {job.asks}"
        questions.append(
            MissingRole(decision, _DECISION.format(job.job_id), fix_in_place=ANSWER_HERE)
        )
    if job.approval:
        approval = f"an approval of its {job.approval} by a person{since}"
        questions.append(
            MissingRole(approval, APPROVAL.format(job.job_id), fix_in_place=ANSWER_HERE)
        )
    return questions


def missing_for(
    store: Store, job: JobStanding, out: Iterable[HandoffId]
) -> tuple[MissingRole, ...]:
    """Read the reasons from the store in one round trip. An ended job has none.

    `out`: the handoffs of the job that have no result.
    """
    if job.status.ended:
        return ()
    there = store.presence.presence(handoffs=[(job.job_id, handoff_id) for handoff_id in out])
    return _missing(store, {job.job_id: job}, there)[job.job_id]


def missing_in(store: Store, job: JobStanding, most: int) -> tuple[MissingRole, ...]:
    """Return the reasons of a job, with its handoffs among the first `most` of each unserved
    queue.
    """
    if job.status.ended:
        return ()
    reasons = _missing(store, {job.job_id: job}, store.presence.presence([job.job_id], most=most))[
        job.job_id
    ]
    return tuple(replace(reason, are_all=len(reason.steps) < most) for reason in reasons)


def with_waiting(store: Store, jobs: Sequence[JobStanding]) -> list[JobStanding]:
    """Return the jobs with their reasons to wait. All open jobs take one round trip."""
    going_on: list[JobId] = [job.job_id for job in jobs if not job.status.ended]
    if not going_on:
        return list(jobs)
    reasons = _missing(store, {job.job_id: job for job in jobs}, store.presence.presence(going_on))
    return [replace(job, waiting_for="; ".join(map(str, reasons[job.job_id]))) for job in jobs]


def _missing(
    store: Store, jobs: Mapping[JobId, JobStanding], there: Presence
) -> dict[JobId, tuple[MissingRole, ...]]:
    """Return the reasons of each job.

    If Redis takes no writes, announcements expire, and all processes seem to be missing. The
    reason is then Redis.
    """
    reasons = {job_id: missing(job, there) for job_id, job in jobs.items()}
    if any(reasons.values()) and (why := store.health.refusal()):
        return {
            job_id: (MissingRole("a Redis that takes writes", why),) if job_reasons else ()
            for job_id, job_reasons in reasons.items()
        }
    return reasons


def _utc(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _worker_of(specialists: Sequence[str], *steps: str) -> MissingRole:
    whom = " or ".join(f"`{name}`" for name in specialists)
    return _process(f"a worker of {whom}", f"worker {specialists[0]}", *steps)


def _paused(role: str, pause: Pause, *steps: str) -> MissingRole:
    why = ""
    if pause.reason:
        why = f" ({pause.reason})"
    return MissingRole(
        f"`{role}`, which is paused{why}",
        f"let it go on with `handoff unpause {role}`",
        () if role in ROLES else steps,
    )


def _in_order(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts `s_2` before `s_10`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _NUMBER.split(name)]


def _process(whom: str, command: str, *steps: str) -> MissingRole:
    """Return the entry for a process that is not running. `command`: starts one."""
    fix = f"start one with `handoff {command}`"
    return MissingRole(whom, fix, steps, fix_in_place="this run starts it again")


def _may_be_planned(job: JobStanding, there: Presence) -> bool:
    served = there.queues - {SUPERVISOR_QUEUE}
    return bool(served & set(job.specialists) if job.specialists else served)


ANSWER_HERE = "answer here"
_DECISION = "let it go on with `handoff retry {0} --max-usd X` (or --max-job-turns N), or end it with `handoff cancel {0}`"
APPROVAL = "`handoff approve {0}` or `handoff reject {0} --note TEXT` (`handoff show {0} --full` has what it is about)"
"""The commands that answer a question of the job {0}."""
