"""Jobs outside their journals: the standing of jobs and handoffs, the list of jobs, the trace
context of a job, and the sweep that finds due work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite
from typing import Any, Protocol

from handoff_queue.shared.observability.trace_ids import StoredTrace
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim_history import PastClaim, past_claims_of
from handoff_queue.shared.store.handoff_roles import roles_of
from handoff_queue.shared.store.redis.connection import Connection, answers_of, translated_errors
from handoff_queue.shared.store.script_arguments import (
    figure_in,
    handoff_id_in,
    job_id_in,
    name_in,
)
from handoff_queue.shared.types.budget_measures import AMOUNTS
from handoff_queue.shared.types.events import DEFAULT_TENANT, JobStatus
from handoff_queue.shared.types.ids import HandoffId, JobId, JobIdField, is_job_id
from handoff_queue.shared.types.message import LATEST_TIME_S
from handoff_queue.shared.types.usage import Usage

SWEEP_AT_MOST = 200
"""Entries of each kind that one sweep reads."""
ACTED_WITHIN_S = 1.5
"""Seconds for which a wake-up in no queue counts as on its way to a supervisor. After that
time the sweeper finds its job again. With two sweeps of a second each, this fits into the 5 s
after a lost lease within which a handoff runs again.
"""
FORGET_AT_ONCE = 1_000
"""Jobs in one round trip of `forget_older_than`."""
JOBS_A_ROUND_TRIP = 500
"""Jobs of the list that one script reads: about a millisecond of Redis's time."""
PARTS_AT_MOST = 20
"""Round trips of one page of the list: 10,000 jobs."""
LOST_AFTER_S = 5.0
"""Seconds for which a message in no queue counts as on its way to the queue or to a claim.
After that time it counts as lost.
"""

SPENT = (
    *(amount.total for amount in AMOUNTS),
    "unpriced",
    "cut_calls",
    "cut_tokens",
    "cut_usd",
)
"""Fields with the spent amounts of a handoff or a job."""
_PROGRESS = frozenset(
    name.encode()
    for name in (
        *SPENT,
        "version",
        "tip",
        "tally",
        "calls",
        "asked_last",
        "asked_at",
        "failed_last",
        "failed_roles",
        "dropped_last",
    )
)
"""Facts of a job that workers write. All others count only in the hash of the job, because a
worker that was taken over may write a title, a status or children into the progress.
"""


class Traces:
    """The trace contexts of jobs. Reads only."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def kept(self, job_id: JobId) -> StoredTrace:
        """Return the trace context of a job and its parent job; both None for an unknown job.

        Raises:
            StoreUnavailable: Redis is unreachable.
        """
        with translated_errors():
            traceparent, parent = self._connection.redis.hmget(
                keys.job(job_id), "traceparent", "parent"
            )
        return StoredTrace(
            traceparent.decode("ascii", "replace") if traceparent else None,
            JobId(parent.decode().partition("/")[0]) if parent else None,
        )


class SpentAmounts(Protocol):
    """The spent amounts of a handoff or a job, as its budget account counts them."""

    __slots__ = ()

    @property
    def input_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...
    @property
    def cost_microusd(self) -> int | None: ...
    @property
    def cut_calls(self) -> int: ...
    @property
    def cut_tokens(self) -> int: ...
    @property
    def cut_microusd(self) -> int: ...

    @property
    def usage(self) -> Usage:
        """Return the usage of all model calls."""
        return Usage(
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cost_microusd=self.cost_microusd,
            cut_calls=self.cut_calls,
            cut_tokens=self.cut_tokens,
            cut_microusd=self.cut_microusd,
        )


@dataclass(frozen=True, slots=True)
class HandoffStanding(SpentAmounts):
    """State of one handoff in the store. Times are Unix seconds."""

    state: str
    """issued, running, done or dropped."""
    lease_until: float | None = None
    lost: bool = False
    """True if its message or its claim was lost, and the sweeper must publish it again."""
    held: bool = False
    """True while its role is paused, its message is a dead letter, or it is deferred."""
    deferred_until: float | None = None
    """Time until which it waits for its provider, with the reason in `doing`; None if it does
    not.
    """
    queue: str = ""
    """Queue of its message; empty while the supervisor runs a role's handoff in its own process."""
    worker: str = ""
    claims: int = 0
    """Claims since the handoff last made progress."""
    lost_claims: int = 0
    """Claims of the handoff that were lost with their process."""
    past_claims: tuple[PastClaim, ...] = ()
    """Claims that ended without a result, in order."""
    claimed_at: float | None = None
    """Beginning of the claim that holds or that ended with a result; None if there is none."""
    turns: int = 0
    tool_calls: int = 0
    """Tool calls that were answered."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost_microusd: int | None = 0
    """None: the price of a call is unknown."""
    cut_calls: int = 0
    cut_tokens: int = 0
    cut_microusd: int = 0
    """The upper-bound part of these figures, as in `Usage`."""
    asked_at: float | None = None
    """Time since which it waits for a person's approval of a tool call, with the tool in `doing`;
    None if it does not.
    """
    doing: str = ""
    """Its current activity, or the reason of its deferral."""
    issued_at: float | None = None
    started_at: float | None = None
    finished_at: float | None = None
    heartbeat_at: float | None = None


@dataclass(frozen=True, slots=True)
class JobStanding(SpentAmounts):
    """Standing of one job: its status and its usage. Times are Unix seconds."""

    job_id: JobIdField
    status: JobStatus
    version: int
    title: str
    submitted_at: float
    turns: int = field(default=0, kw_only=True)
    input_tokens: int = field(default=0, kw_only=True)
    output_tokens: int = field(default=0, kw_only=True)
    cost_microusd: int | None = field(default=0, kw_only=True)
    cancelled: bool
    specialists: tuple[str, ...] = ()
    """Allowed specialists; empty: all."""
    cut_calls: int = 0
    cut_tokens: int = 0
    cut_microusd: int = 0
    """The upper-bound part of these figures, as in `Usage`."""
    asks: str = ""
    """Reason why the job waits for a decision of its user; empty if it does not wait."""
    approval: str = ""
    """Subject of the approval that the job waits for; empty if it does not wait."""
    calls_to_approve: tuple[str, ...] = ()
    """Tools of the calls that wait for an approval, one for each call."""
    asked_at: float | None = None
    """Time since which it waits for a person; None if it does not wait."""
    teams_lack: str = ""
    """Words for the amount that is too small for the sub-teams of the plan; empty if it is
    enough.
    """
    parent: JobId | None = None
    """The parent of a child job, or None."""
    children: tuple[JobId, ...] = ()
    """Child jobs that run steps of this job, in the order of the steps' assignment. Some may
    not have begun.
    """
    waiting_for: str = ""
    """Missing specialist or role that the job waits for. The hash does not contain it;
    `supervisor.client.waiting_reasons` adds it.
    """


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Filter of the list of jobs. A field that is not set matches every job."""

    statuses: frozenset[JobStatus] = frozenset()
    """Empty: every status."""
    tenant: str = ""
    submitted_before: float | None = None
    """Unix time in seconds."""
    submitted_after: float | None = None
    """Unix time in seconds."""
    mode: str = ""
    """The mode of the request. A job of an earlier version has no mode."""
    priority: str = ""
    text: str = ""
    """A part of the title or of the id. Capital letters of ASCII match small letters."""
    min_microusd: int | None = None
    """Least cost so far in millionths of a US dollar."""
    specialist: str = ""
    """A specialist that got a handoff of the job."""
    failed_specialist: str = ""
    """A specialist of which a handoff of the job failed, also if a later handoff did not."""


@dataclass(frozen=True, slots=True)
class JobLabels:
    """Fixed properties of a job. A text is '' if a job of an earlier version does not have it."""

    tenant: str
    mode: str
    priority: str


EVERY_JOB = JobFilter()


def first_place(where: JobFilter) -> str:
    """Return the place in the list of jobs at which a filter begins to read."""
    if where.submitted_before is None:
        return "+inf"
    return f"({int(where.submitted_before * 1000)}"


def _arguments(where: JobFilter, place: str, jobs_read: int, count: int) -> list[str | int]:
    """Return the arguments of the scripts of the list: see `lua/parts/job_filter.lua`."""
    lowest = "-inf"
    if where.submitted_after is not None:
        lowest = str(int(where.submitted_after * 1000))
    least: str | int = ""
    if where.min_microusd is not None:
        least = where.min_microusd
    return [
        place,
        lowest,
        jobs_read,
        count,
        where.tenant,
        where.mode,
        where.priority,
        where.text.encode().lower().decode(),  # as Lua does: ASCII only
        least,
        where.specialist,
        where.failed_specialist,
        *sorted(where.statuses),
    ]


@dataclass(frozen=True, slots=True)
class SweepResult:
    """Findings of one sweep."""

    due: dict[JobId, list[HandoffId]]
    """Jobs that a supervisor must evaluate, each with its handoffs that may be lost."""
    fresh: tuple[JobId, ...] = ()
    """Jobs that no supervisor has begun. They are put into the queue of submissions again."""
    more: bool = False
    """True if more entries may be due."""


class Jobs:
    """The jobs of the store, without their journals."""

    def __init__(self, connection: Connection, lease_s: float) -> None:
        self._connection = connection
        self._lease_s = lease_s

    def standings(self, job_ids: Sequence[JobId]) -> list[JobStanding]:
        """Return the standing of each job, in one round trip; unknown jobs are left out. A job
        whose record cannot be read has the status `unreadable`.
        """
        with translated_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            for job_id in job_ids:
                pipe.hgetall(keys.job(job_id))
                pipe.hgetall(keys.progress(job_id))
                pipe.zscore(keys.JOBS, job_id)
            answers = answers_of(pipe)
        standings: list[JobStanding] = []
        parts = [answers[place::3] for place in range(3)]
        for job_id, fields, progress, submitted in zip(job_ids, *parts, strict=True):
            if fields is None or progress is None:
                standings.append(_unreadable(job_id, fields or {}, submitted or 0.0))
            elif fields:
                facts = with_progress(fields, progress)
                standings.append(job_standing(job_id, facts, submitted or 0.0))
        return standings

    def tenant(self, job_id: JobId) -> str:
        """Return the tenant of a job; the default tenant if the job does not exist."""
        with translated_errors():
            tenant = self._connection.redis.hget(keys.job(job_id), "tenant")
        return tenant.decode() if tenant else DEFAULT_TENANT

    def owner(self, job_id: JobId) -> str | None:
        """Return the tenant of a job, or None if the job does not exist. See `owners`."""
        return self.owners([job_id]).get(job_id)

    def owners(self, job_ids: Sequence[JobId]) -> dict[JobId, str]:
        """Return the tenant of each existing job, in one round trip. A job whose record cannot be
        read has no tenant: ''.
        """
        with translated_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            for job_id in job_ids:
                pipe.hmget(keys.job(job_id), ["status", "tenant"])
            answers = answers_of(pipe)
        owners: dict[JobId, str] = {}
        for job_id, fields in zip(job_ids, answers, strict=True):
            if fields is None:
                owners[job_id] = ""
                continue
            status, tenant = fields
            if status is not None:
                owners[job_id] = tenant.decode(errors="replace") if tenant else DEFAULT_TENANT
        return owners

    def newest(self, count: int, where: JobFilter = EVERY_JOB) -> list[JobId]:
        """Return at most `count` jobs that match the filter, the newest first."""
        return list(islice(self.matching(where, count), count))

    def matching(self, where: JobFilter, count: int = JOBS_A_ROUND_TRIP) -> Iterator[JobId]:
        """Yield the jobs that match the filter, the newest first. Each round trip reads one
        page of the list.

        Args:
            count: most matching jobs to return from one page.
        """
        place = first_place(where)
        while place:
            place, entries = self._part(where, count, place)
            yield from entries

    def page(self, where: JobFilter, count: int, after: str = "") -> tuple[list[JobId], str]:
        """Return at most `count` jobs that match the filter, and the place of the next page.

        The place is '' at the end of the list. A filter that few jobs match may end the page
        early, after `PARTS_AT_MOST` round trips.

        Args:
            after: place that an earlier call returned; '' for the first page.
        """
        job_ids: list[JobId] = []
        place = after or first_place(where)
        for _ in range(PARTS_AT_MOST):
            place, entries = self._part(where, count - len(job_ids), place)
            job_ids += entries
            if not place or len(job_ids) == count:
                break
        return job_ids, place

    def _part(self, where: JobFilter, count: int, place: str) -> tuple[str, list[JobId]]:
        """Return the place after a part of the list, and the jobs in it that match."""
        if where != EVERY_JOB:
            jobs_read = JOBS_A_ROUND_TRIP
        else:
            jobs_read = min(count, JOBS_A_ROUND_TRIP)
        arguments = _arguments(where, place, jobs_read, count)
        go_on, entries = self._connection.script("list_jobs", [keys.JOBS], arguments)
        return go_on.decode(), list(map(job_id_in, entries))

    def counts(self, where: JobFilter = EVERY_JOB) -> dict[JobStatus, int]:
        """Return the number of jobs that match the filter, by status.

        Each round trip reads one page of the list.
        """
        counts: dict[JobStatus, int] = {}
        place = first_place(where)
        while place:
            arguments = _arguments(where, place, JOBS_A_ROUND_TRIP, JOBS_A_ROUND_TRIP)
            go_on, answer = self._connection.script("count_jobs", [keys.JOBS], arguments)
            place = go_on.decode()
            for name, count in zip(answer[::2], answer[1::2], strict=True):
                status = JobStatus(name.decode())
                counts[status] = counts.get(status, 0) + count
        return counts

    def labels(self, job_ids: Sequence[JobId]) -> dict[JobId, JobLabels]:
        """Return the fixed properties of each job, in one round trip."""
        with translated_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            for job_id in job_ids:
                pipe.hmget(keys.job(job_id), "tenant", "mode", "priority")
            answers = answers_of(pipe)
        labels: dict[JobId, JobLabels] = {}
        for job_id, values in zip(job_ids, answers, strict=True):
            texts = [(value or b"").decode(errors="replace") for value in values or (b"",) * 3]
            tenant, mode, priority = texts
            labels[job_id] = JobLabels(tenant or DEFAULT_TENANT, mode, priority)
        return labels

    def beginning_with(self, prefix: str, most: int) -> list[JobId]:
        """Return at most `most` jobs and child jobs with an id that begins with the prefix,
        the newest first.
        """
        job_ids: list[JobId] = []
        place = "+inf"
        while place and len(job_ids) < most:
            arguments = [place, JOBS_A_ROUND_TRIP, prefix]
            go_on, names = self._connection.script("find_jobs", [keys.JOBS], arguments)
            place = go_on.decode()
            job_ids.extend(map(job_id_in, names))
        return job_ids[:most]

    def handoffs(
        self, job_id: JobId, handoff_ids: Sequence[HandoffId]
    ) -> dict[HandoffId, HandoffStanding]:
        """Return the standing of each handoff, in two round trips; unknown handoffs are left
        out.
        """
        handoffs: dict[HandoffId, HandoffStanding] = {}
        for handoff_id, fields in hashes_of(self._connection, job_id, handoff_ids).items():
            handoffs[handoff_id] = handoff_standing(fields)
        return handoffs

    def delete(self, job_id: JobId) -> None:
        """Delete all data of an ended job except its documents, which other jobs may use."""
        names = [
            keys.job(job_id),
            keys.progress(job_id),
            keys.log(job_id),
            keys.blobs(job_id),
            keys.fetched(job_id),
            keys.refused(job_id),
            keys.roles(job_id),
        ]
        due: dict[str, list[str]] = {keys.DUE: [job_id]}
        with translated_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            pipe.hgetall(keys.roles(job_id))
            (roles,) = answers_of(pipe)
            for stored_id, role in (roles or {}).items():
                handoff_id, role_name = handoff_id_in(stored_id), role.decode(errors="replace")
                names.append(keys.handoff(job_id, role_name, handoff_id))
                names.append(keys.turns(job_id, role_name, handoff_id))
                names.append(keys.draft(job_id, role_name, handoff_id))
                members = due.setdefault(keys.due(role_name), [job_id])
                members.append(f"{job_id}/{handoff_id}")
            pipe = self._connection.redis.pipeline(transaction=False)
            pipe.unlink(*names)
            pipe.zrem(keys.JOBS, job_id)
            for name, members in due.items():
                pipe.zrem(name, *members)
            pipe.execute()

    def is_refused(self, job_id: JobId, version: int) -> bool:
        """Return whether a supervisor has recorded that it refuses this event."""
        with translated_errors():
            return bool(self._connection.redis.hexists(keys.refused(job_id), version))

    def note_refused(self, job_id: JobId, version: int, reason: str, keep_s: int) -> None:
        """Note that the refusal of an event is recorded."""
        with translated_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            pipe.hset(keys.refused(job_id), version, reason)
            pipe.expire(keys.refused(job_id), keep_s)
            pipe.execute()

    def reopen(self, job_id: JobId, handoff_id: HandoffId, version: int) -> bool:
        """Open a handoff again if the event at this version has ended it. Return whether it was
        opened.
        """
        return bool(
            self._connection.script("reopen_handoff", [keys.job(job_id)], [handoff_id, version])
        )

    def queue(self, job_id: JobId, handoff_id: HandoffId, queue: str) -> bool:
        """Note that a role's handoff will be sent to this queue. Return False if it must not
        be sent: it waits in a queue already, a process has claimed it, or it has ended.
        """
        arguments = [handoff_id, queue, int(ACTED_WITHIN_S * 1000)]
        return bool(self._connection.script("queue_role_handoff", [keys.job(job_id)], arguments))

    def sent(self, job_id: JobId, handoff_ids: Sequence[HandoffId]) -> None:
        """Note that the handoffs were sent to their queues, so that the sweep does not find
        them unless they are lost again.
        """
        self._connection.script("mark_sent", [keys.job(job_id)], list(handoff_ids))

    def sweep(self) -> SweepResult:
        """Return the jobs that need an evaluation now.

        Each job is returned once, until a supervisor has evaluated it or the wake-up is lost.
        Any number of sweepers share the work.
        """
        members, fresh, more = self._connection.script(
            "sweep",
            [keys.DUE, keys.QUEUES],
            [
                SWEEP_AT_MOST,
                int(ACTED_WITHIN_S * 1000),
                int(LOST_AFTER_S * 1000),
                int(self._lease_s * 1000),
            ],
        )
        due: dict[JobId, list[HandoffId]] = {}
        for member in members:
            job_id, _, handoff_id = member.decode(errors="replace").partition("/")
            if not is_job_id(job_id):
                self._drop_due(member)
                continue
            suspects = due.setdefault(JobId(job_id), [])
            if handoff_id:
                suspects.append(HandoffId(handoff_id))
        return SweepResult(due, tuple(map(job_id_in, fresh)), bool(more))

    def _drop_due(self, member: bytes) -> None:
        """Remove an entry that another program wrote, and that names no job."""
        with translated_errors():
            self._connection.redis.zrem(keys.DUE, member)

    def forget_older_than(self, unix_s: float) -> None:
        """Remove jobs from the list that were submitted before this time and that retention
        has deleted. Older jobs that still exist stay.
        """
        redis, remaining = self._connection.redis, 0
        with translated_errors():
            while old := redis.zrange(
                keys.JOBS, "-inf", unix_s * 1000, byscore=True, offset=remaining, num=FORGET_AT_ONCE
            ):
                pipe = redis.pipeline(transaction=False)
                for job_id in old:
                    pipe.exists(keys.job(job_id.decode()))
                deleted: list[bytes] = []
                for job_id, exists in zip(old, pipe.execute(), strict=True):
                    if not exists:
                        deleted.append(job_id)
                remaining += len(old) - len(deleted)
                if deleted:
                    redis.zrem(keys.JOBS, *deleted)


def with_progress(
    fields: Mapping[bytes, bytes], progress: Mapping[bytes, bytes]
) -> dict[bytes, bytes]:
    """Return the facts of a job: the fields of its hash, and those of its progress that workers
    write.
    """
    facts = dict(fields)
    for name, value in progress.items():
        if name in _PROGRESS or name.startswith(b"approval:"):
            facts[name] = value
    return facts


def job_standing(job_id: JobId, fields: Mapping[bytes, bytes], submitted_ms: float) -> JobStanding:
    """Return the standing of a job from the fields of its hash and of its progress.

    An open job that waits for a person's answer has the status `waiting`, also while its other
    steps run. `waits_for_person` in `parts/jobs.lua` is the same rule for the filter of the
    list.

    Args:
        submitted_ms: score of the job in the list of jobs; 0 for a job that is not in the list.
    """
    try:
        return _standing(job_id, fields, submitted_ms)
    except (ValueError, OverflowError):  # another program has written a field
        return _unreadable(job_id, fields, submitted_ms)


def _unreadable(job_id: JobId, fields: Mapping[bytes, bytes], submitted_ms: float) -> JobStanding:
    """Return the standing of a job whose record cannot be read."""
    words = fields.get(b"children", b"").decode(errors="replace").split()
    return JobStanding(
        job_id=job_id,
        status=JobStatus.UNREADABLE,
        version=0,
        title="its record in Redis cannot be read",
        submitted_at=submitted_ms / 1000 if isfinite(submitted_ms) else 0.0,
        cost_microusd=None,
        cancelled=False,
        children=tuple(JobId(word) for word in words if is_job_id(word)),
    )


def _standing(job_id: JobId, fields: Mapping[bytes, bytes], submitted_ms: float) -> JobStanding:
    """Return the standing of a job, as `job_standing`.

    Raises:
        ValueError, OverflowError: a field has no value of its type.
    """

    def number(name: bytes) -> int:
        figure = figure_in(fields.get(name, b"0"))
        if figure is None:
            raise ValueError(f"{name.decode()} is no number")
        return figure

    def amount(name: bytes) -> int:
        # a worker writes the progress, and a wrong amount must not stop a cancel
        return figure_in(fields.get(name)) or 0

    def text(name: bytes) -> str:
        return fields.get(name, b"").decode()

    status, asks = JobStatus(text(b"status") or "queued"), text(b"asks")
    approval = name_in(fields.get(b"approval:" + fields.get(b"asked_last", b""), b""))
    is_waiting = not status.ended and bool(asks or approval)
    asked_at = amount(b"asked_at") / 1000
    is_priced = b"unpriced" not in fields and figure_in(fields.get(b"usd", b"0")) is not None
    return JobStanding(
        job_id=job_id,
        status=JobStatus.WAITING if is_waiting else status,
        version=number(b"version"),
        title=text(b"title"),
        submitted_at=(int(submitted_ms) or number(b"submitted_at")) / 1000,
        **_spent_amounts(amount, is_priced=is_priced),
        cancelled=b"cancelled" in fields,
        specialists=tuple(text(b"specialists").split()),
        asks=asks,
        approval=approval,
        calls_to_approve=tuple(
            call.partition(":")[2] for call in name_in(fields.get(b"calls", b"")).split()
        ),
        asked_at=asked_at if is_waiting else None,
        teams_lack=text(b"teams_lack"),
        parent=JobId(fields[b"parent"].decode().partition("/")[0]) if b"parent" in fields else None,
        children=tuple(map(JobId, text(b"children").split())),
    )


def _spent_amounts(number: Callable[[bytes], int], *, is_priced: bool) -> dict[str, Any]:
    """Return the fields of `SpentAmounts`.

    Args:
        number: returns the number in a field of Redis.
    """
    return {
        "turns": number(b"turns"),
        "input_tokens": number(b"input_tokens"),
        "output_tokens": number(b"output_tokens"),
        "cost_microusd": number(b"usd") if is_priced else None,
        "cut_calls": number(b"cut_calls"),
        "cut_tokens": number(b"cut_tokens"),
        "cut_microusd": number(b"cut_usd"),
    }


def hashes_of(
    connection: Connection, job_id: JobId, handoff_ids: Sequence[HandoffId]
) -> dict[HandoffId, dict[bytes, bytes]]:
    """Return the hashes of handoffs, in two or three round trips; unknown handoffs are left out.
    The amounts of a handoff that a child job does are those of the child job.
    """
    roles = roles_of(connection, job_id, handoff_ids)
    with translated_errors():
        pipe = connection.redis.pipeline(transaction=False)
        for handoff_id, role in roles.items():
            pipe.hgetall(keys.handoff(job_id, role, handoff_id))
        answers = pipe.execute()
    hashes: dict[HandoffId, dict[bytes, bytes]] = {}
    for handoff_id, fields in zip(roles, answers, strict=True):
        if fields:
            hashes[handoff_id] = fields
    _add_amounts_of_children(connection, hashes.values())
    return hashes


def _add_amounts_of_children(connection: Connection, hashes: Iterable[dict[bytes, bytes]]) -> None:
    """Add the spent amounts of child jobs to the hashes of the handoffs that they do. A handoff
    whose child job has gone on for a later handoff has its amounts already.
    """
    done_by_children: list[dict[bytes, bytes]] = []
    for fields in hashes:
        if b"child" in fields and b"turns" not in fields:
            done_by_children.append(fields)
    if not done_by_children:
        return
    with translated_errors():
        pipe = connection.redis.pipeline(transaction=False)
        for fields in done_by_children:
            pipe.hmget(keys.progress(JobId(name_in(fields[b"child"]))), SPENT)
        answers = pipe.execute()
    for fields, amounts in zip(done_by_children, answers, strict=True):
        for name, amount in zip(SPENT, amounts, strict=True):
            if amount is not None:
                before = figure_in(fields.get(f"before_{name}".encode())) or 0
                fields[name.encode()] = str((figure_in(amount) or 0) - before).encode()


def handoff_standing(fields: Mapping[bytes, bytes]) -> HandoffStanding:
    """Return the standing of a handoff from the fields of its hash. A field that cannot be read
    counts as missing: a worker may have written it.
    """

    def seconds(name: bytes) -> float | None:
        ms = figure_in(fields.get(name))
        is_time = ms is not None and 0 <= ms / 1000 <= LATEST_TIME_S
        return ms / 1000 if ms is not None and is_time else None

    def number(name: bytes) -> int:
        return figure_in(fields.get(name)) or 0

    return HandoffStanding(
        state=name_in(fields.get(b"state", b"issued")),
        lease_until=seconds(b"lease"),
        lost=b"lost" in fields,
        held=b"held" in fields,
        deferred_until=seconds(b"deferred"),
        asked_at=seconds(b"asks_since"),
        queue=name_in(fields.get(b"queue", b"")),
        worker=name_in(fields.get(b"worker", b"")),
        claims=number(b"claims"),
        lost_claims=number(b"lost_claims"),
        past_claims=past_claims_of(fields),
        claimed_at=seconds(b"claimed_at"),
        tool_calls=number(b"tools"),
        **_spent_amounts(number, is_priced=b"unpriced" not in fields),
        doing=name_in(fields.get(b"doing", b"")),
        issued_at=seconds(b"issued_at"),
        started_at=seconds(b"started_at"),
        finished_at=seconds(b"finished_at"),
        heartbeat_at=seconds(b"heartbeat"),
    )
