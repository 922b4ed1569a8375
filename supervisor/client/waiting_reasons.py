"""The reasons why a job waits: a process is not running, an agent is paused, or a person must
answer.

The reasons are computed when a caller asks, and are not stored. A process that dies counts as
missing when its announcement expires (`ANNOUNCED_FOR_S`). The handoffs that the process had
claimed count as waiting when their leases have expired.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from handoff_queue.shared.store.job_filter import JobFilter
from handoff_queue.shared.store.job_info import JobInfo
from handoff_queue.shared.store.pauses import Pause
from handoff_queue.shared.store.presence import Presence
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.text.times import format_utc
from handoff_queue.shared.text.word_forms import close_names
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.ids import HandoffId, JobId, parse_step_id
from handoff_queue.shared.types.job_options import ApprovalOf, describe_awaited_answer
from handoff_queue.shared.types.names import ROLES, SUPERVISOR_QUEUE

MAX_QUEUED = 200
"""Most queued jobs that `count_jobs_without_workers` reads."""

CHECK_EVERY_S = 2.0
"""Seconds between two checks of a watcher. One check is one round trip."""
_NUMBER = re.compile(r"([0-9]+)")
MISSPELLED = 0.85
"""Least similarity of a misspelled name, from 0 to 1. Two letters of `analyst` may be exchanged,
and `writer` is not similar to `reviewer`.
"""
START = "start one"
DECIDE = "continue the job with a higher limit, or cancel the job"
APPROVE = "approve it or reject it"
APPROVE_CALL = "approve the call or reject it"
MAX_NAMED = 5
"""Most steps that a line names. The line gives the number of the other steps."""


class Remedy(Enum):
    """The action that ends a wait. Each interface has its own way to it: a command, a route or a
    button.
    """

    START_SUPERVISOR = auto()
    START_WORKER = auto()
    UNPAUSE = auto()
    DECIDE = auto()
    """Continue the job with a higher limit, or cancel the job."""
    APPROVE = auto()
    APPROVE_CALL = auto()


@dataclass(frozen=True, slots=True)
class WaitingReason:
    """A process or a person that a job needs, and that is absent or paused."""

    awaited: str
    """The missing process or person in words, such as `a worker of ...`."""
    fix: str
    """What to do, in words for every interface."""
    steps: tuple[str, ...] = ()
    """The steps that wait. Empty: the whole job waits."""
    remedy: Remedy | None = None
    """None: no action of this system helps."""
    subject: str = ""
    """The specialist to start (empty: any), the agent to unpause, or the job of the question."""
    are_all: bool = True
    """False if more steps may wait than `steps` has."""
    specialists: tuple[str, ...] = ()
    """The specialists of which a worker is missing. A worker of one specialist suffices."""
    limits: tuple[str, ...] = ()
    """The limits of which one must be raised, by their names. Empty: none, or unknown."""

    def __str__(self) -> str:
        match self.steps:
            case ():
                waits = "the job waits"
            case (step,):
                waits = f"step {step} waits"
            case _:
                named_steps = sorted(self.steps, key=_build_natural_sort_key)[:MAX_NAMED]
                more = ""
                if len(named_steps) < len(self.steps):
                    at_least = "" if self.are_all else "at least "
                    more = f" and {at_least}{len(self.steps) - len(named_steps):,} more"
                waits = f"steps {', '.join(named_steps)}{more} wait"
        return f"{waits} for {self.awaited}: {self.fix}"


Describe = Callable[[WaitingReason], str]
"""Returns a reason in words. `str` names no command of an interface."""


def find_waiting_reasons(job: JobInfo, presence: Presence) -> tuple[WaitingReason, ...]:
    """Return the processes and persons that the job needs now, and that are absent or paused.
    Pure.
    """
    if job.status.has_ended:
        return ()
    reasons: list[WaitingReason] = []
    if SUPERVISOR_QUEUE not in presence.queues:
        reasons.append(WaitingReason("a supervisor", START, remedy=Remedy.START_SUPERVISOR))
    reasons += find_open_questions(job)
    waiting: dict[str, list[str]] = {}
    for handoff_id, agent in sorted(presence.unclaimed.get(job.job_id, {}).items()):
        waiting.setdefault(agent, []).append(parse_step_id(handoff_id))
    for agent, steps in sorted(waiting.items()):
        if agent in presence.paused:
            reasons.append(_explain_pause(agent, presence.paused[agent], *steps))
        else:
            reasons.append(_explain_missing_worker((agent,), presence, *steps))
    if job.status is JobStatus.QUEUED and not _may_be_planned(job, presence):
        if job.specialists:
            reasons.append(_explain_missing_worker(job.specialists, presence))
        else:
            worker = "a worker of any specialist"
            reasons.append(WaitingReason(worker, START, remedy=Remedy.START_WORKER))
    return tuple(reasons)


def find_open_questions(job: JobInfo) -> list[WaitingReason]:
    """Return the questions of the job that a person must answer. Pure."""
    if job.status is not JobStatus.WAITING:
        return []
    since = ""
    if job.asked_at is not None:
        since = f" since {format_utc(job.asked_at)}"
    questions: list[WaitingReason] = []
    if job.asks:
        decision = f"a decision by a person{since}, because {job.asks}"
        questions.append(
            WaitingReason(
                decision,
                DECIDE,
                remedy=Remedy.DECIDE,
                subject=job.job_id,
                limits=job.limits_to_raise,
            )
        )
    if job.approval:
        answer = describe_awaited_answer(job.approval)
        fix, remedy = APPROVE, Remedy.APPROVE
        if job.approval == ApprovalOf.TOOLS:
            tools = ", ".join(dict.fromkeys(job.calls_to_approve))
            answer = f"an approval of a call of {tools}"
            fix, remedy = APPROVE_CALL, Remedy.APPROVE_CALL
        approval = f"{answer} by a person{since}"
        questions.append(WaitingReason(approval, fix, remedy=remedy, subject=job.job_id))
    return questions


def read_waiting_reasons(
    store: Store, job: JobInfo, open_handoffs: Iterable[HandoffId]
) -> tuple[WaitingReason, ...]:
    """Return the reasons of a job. An ended job has none.

    Args:
        open_handoffs: the handoffs of the job that have no result.
    """
    if job.status.has_ended:
        return ()
    handoffs = [(job.job_id, handoff_id) for handoff_id in open_handoffs]
    presence = store.presence.read_presence(handoffs=handoffs)
    return _find_waiting_reasons(store, [job], presence)[job.job_id]


def read_some_waiting_reasons(store: Store, job: JobInfo, limit: int) -> tuple[WaitingReason, ...]:
    """Return the reasons of a job. The steps come from the first `limit` messages of each
    unserved queue.
    """
    if job.status.has_ended:
        return ()
    presence = store.presence.read_presence([job.job_id], limit=limit)
    reasons = _find_waiting_reasons(store, [job], presence)[job.job_id]
    return tuple(replace(reason, are_all=len(reason.steps) < limit) for reason in reasons)


def with_waiting(store: Store, jobs: Sequence[JobInfo], describe: Describe = str) -> list[JobInfo]:
    """Return the jobs with their reasons to wait, in the same order.

    The client asks Redis once for all open jobs, and a second time if a job waits.
    """
    open_jobs = [job.job_id for job in jobs if not job.status.has_ended]
    if not open_jobs:
        return list(jobs)
    reasons = _find_waiting_reasons(store, jobs, store.presence.read_presence(open_jobs))
    with_reasons: list[JobInfo] = []
    for job in jobs:
        waiting_for = "; ".join(map(describe, reasons[job.job_id]))
        with_reasons.append(replace(job, waiting_for=waiting_for))
    return with_reasons


def count_jobs_without_workers(store: Store) -> dict[tuple[str, ...], int]:
    """Return the number of queued jobs that no worker can begin, by the specialists that they
    may use; `()`: any specialist. Only the newest `MAX_QUEUED` queued jobs count.
    """
    job_ids, _ = store.jobs.read_page(JobFilter(frozenset({JobStatus.QUEUED})), MAX_QUEUED)
    if not job_ids:
        return {}
    presence = store.presence.read_presence(job_ids)
    counts: dict[tuple[str, ...], int] = {}
    for job in store.jobs.read(job_ids):
        if job.status is JobStatus.QUEUED and not _may_be_planned(job, presence):
            specialists = tuple(sorted(job.specialists))
            counts[specialists] = counts.get(specialists, 0) + 1
    return counts


def _find_waiting_reasons(
    store: Store, jobs: Iterable[JobInfo], presence: Presence
) -> dict[JobId, tuple[WaitingReason, ...]]:
    """Return the reasons of each job.

    If Redis takes no writes, announcements expire, and all processes seem to be missing. The
    reason is then Redis.
    """
    reasons = {job.job_id: find_waiting_reasons(job, presence) for job in jobs}
    if not any(reasons.values()):
        return reasons
    refusal = store.health.find_refusal()
    if not refusal:
        return reasons
    for job_id, job_reasons in reasons.items():
        if job_reasons:
            reasons[job_id] = (WaitingReason("a Redis that accepts writes", refusal),)
    return reasons


def _explain_missing_worker(
    specialists: Sequence[str], presence: Presence, *steps: str
) -> WaitingReason:
    """Return the reason for specialists without a worker, with the closest served name."""
    names = " or ".join(f"`{name}`" for name in specialists[:MAX_NAMED])
    if len(specialists) > MAX_NAMED:
        names += f" or {len(specialists) - MAX_NAMED:,} others"
    intended_name = find_intended_name(specialists[0], presence.queues)
    if intended_name:
        names += f" (did you mean `{intended_name}`?)"
    return WaitingReason(
        f"a worker of {names}",
        START,
        steps,
        Remedy.START_WORKER,
        specialists[0],
        specialists=tuple(specialists),
    )


def find_intended_name(specialist: str, served: Collection[str]) -> str | None:
    """Return the served specialist whose name is almost the same; None: there is none."""
    for name in close_names(specialist, sorted(served), alike=MISSPELLED):
        return name
    return None


def _explain_pause(agent: str, pause: Pause, *steps: str) -> WaitingReason:
    why = ""
    if pause.reason:
        why = f" ({pause.reason})"
    return WaitingReason(
        f"`{agent}`, which is paused{why}",
        "unpause it",
        () if agent in ROLES else steps,
        Remedy.UNPAUSE,
        agent,
    )


def _build_natural_sort_key(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts `s_2` before `s_10`."""
    key: list[tuple[int, str]] = []
    for part in _NUMBER.split(name):
        if part.isdecimal():
            key.append((int(part), ""))
        else:
            key.append((-1, part))
    return key


def _may_be_planned(job: JobInfo, presence: Presence) -> bool:
    """Return whether a worker serves a specialist that the job may use."""
    served = presence.queues - {SUPERVISOR_QUEUE}
    if job.specialists:
        served = served & set(job.specialists)
    return bool(served)
