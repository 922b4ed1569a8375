"""Jobs as a whole: how they stand, which there are, how their handoffs stand, and what time
makes necessary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.claim_history import PastClaim, past_claims_of
from handoff_queue.shared.store.redis.connection import Connection, in_our_words
from handoff_queue.shared.types.events import DEFAULT_TENANT, JobStatus
from handoff_queue.shared.types.ids import HandoffId, JobId, JobIdField

SWEEP_AT_MOST = 200
ACTED_WITHIN_S = 1.5
"""Seconds for which a wake-up in no queue counts as on its way to a supervisor. After that time the
sweeper finds its job again. With two sweeps of a second each, this fits into the 5 s after a
lost lease within which a handoff runs again.
"""
FORGET_AT_ONCE = 1_000
"""Jobs in one round trip."""
LOOK_AT = 500
"""Jobs of the list that Redis looks at in one script: about a millisecond of its time."""
LOST_AFTER_S = 5.0
"""A message that is in no queue is on its way there, or to a claim, for at most this long."""


@dataclass(frozen=True, slots=True)
class HandoffStanding:
    """State of one handoff in the store. Times are Unix seconds."""

    state: str
    lease_until: float | None = None
    lost: bool = False
    held: bool = False
    """True while its role is paused, its message is a dead letter, or it is deferred."""
    parked_until: float | None = None
    """Time until which it waits for its provider, with the reason in `doing`; None if it does not.
    """
    queue: str = ""
    """Queue of its message; empty while the supervisor runs a role's handoff in its own process."""
    worker: str = ""
    claims: int = 0
    """Claims since the handoff last made progress."""
    lost_claims: int = 0
    """Claims of the handoff that were lost with their process."""
    stints: tuple[PastClaim, ...] = ()
    """Claims that ended without a result, in order."""
    claimed_at: float | None = None
    """Beginning of the claim that holds or that ended with a result; None if there is none."""
    turns: int = 0
    tool_calls: int = 0
    """Tool calls that were answered."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost_microusd: int | None = 0
    cut_calls: int = 0
    cut_tokens: int = 0
    cut_microusd: int = 0
    """The upper-bound part of these figures, as in `Usage`."""
    doing: str = ""
    issued_at: float | None = None
    started_at: float | None = None
    finished_at: float | None = None
    beat_at: float | None = None


@dataclass(frozen=True, slots=True)
class JobStanding:
    """The hash of one job: its status and its usage."""

    job_id: JobIdField
    status: JobStatus
    version: int
    title: str
    submitted_at: float
    turns: int
    input_tokens: int
    output_tokens: int
    cost_microusd: int | None
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
    asked_at: float | None = None
    """Time since which it waits for a person, in Unix seconds; None if it does not."""
    teams_lack: str = ""
    """Resource that the sub-teams of the plan get too little from; empty if there is enough."""
    parent: JobId | None = None
    """The job whose step it does, if it is a child."""
    children: tuple[JobId, ...] = ()
    """Child jobs that run steps of this job, in the order of the steps' assignment. Some may not
    have begun.
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


EVERY_JOB = JobFilter()


@dataclass(frozen=True, slots=True)
class SweepResult:
    """Findings of one sweep."""

    due: dict[JobId, list[HandoffId]]
    """Jobs that need a look, each with the handoffs that something may be wrong with."""
    fresh: tuple[JobId, ...] = ()
    """Jobs that no supervisor has begun. They are announced again."""
    more: bool = False
    """True if there may be more such jobs."""


class Jobs:
    """Facts about jobs outside their journals."""

    def __init__(self, connection: Connection, lease_s: float) -> None:
        self._connection = connection
        self._lease_s = lease_s

    def standings(self, job_ids: Sequence[JobId]) -> list[JobStanding]:
        """Return the standing of each job, in one round trip; unknown jobs are left out."""
        with in_our_words():
            pipe = self._connection.redis.pipeline(transaction=False)
            for job_id in job_ids:
                pipe.hgetall(keys.job(job_id))
                pipe.zscore(keys.JOBS, job_id)
            answers = pipe.execute()
        return [
            job_standing(job_id, fields, submitted or 0.0)
            for job_id, fields, submitted in zip(job_ids, answers[::2], answers[1::2], strict=True)
            if fields
        ]

    def tenant(self, job_id: JobId) -> str:
        """Return the tenant of a job; the default one for a job that is not there any more."""
        with in_our_words():
            tenant = self._connection.redis.hget(keys.job(job_id), "tenant")
        return tenant.decode() if tenant else DEFAULT_TENANT

    def newest(self, count: int, where: JobFilter = EVERY_JOB) -> list[JobId]:
        """Return the jobs that match, the newest first; at most `count`."""
        return list(islice(self.matching(where, count), count))

    def matching(self, where: JobFilter, count: int = LOOK_AT) -> Iterator[JobId]:
        """Yield the jobs that match, the newest first, one page of the list in each round trip.

        `count`: how many the caller needs at most of each page.
        """
        if where != EVERY_JOB:
            look_at = LOOK_AT
        else:
            look_at = min(count, LOOK_AT)
        place = "+inf"
        if where.submitted_before is not None:
            place = f"({int(where.submitted_before * 1000)}"
        while place:
            order = [place, look_at, count, where.tenant, *sorted(where.statuses)]
            go_on, entries = self._connection.script("list_jobs", [keys.JOBS], order)
            place = go_on.decode()
            for job_id in entries:
                yield JobId(job_id.decode())

    def beginning_with(self, prefix: str, most: int) -> list[JobId]:
        """Return jobs, and child jobs, with an id that begins so; at most `most`, the newest first."""
        job_ids: list[JobId] = []
        place = "+inf"
        while place and len(job_ids) < most:
            order = [place, LOOK_AT, prefix]
            go_on, names = self._connection.script("find_jobs", [keys.JOBS], order)
            place = go_on.decode()
            for name in names:
                job_ids.append(JobId(name.decode()))
        return job_ids[:most]

    def handoffs(
        self, job_id: JobId, handoff_ids: Sequence[HandoffId]
    ) -> dict[HandoffId, HandoffStanding]:
        """Return the standing of each handoff, in one round trip; unknown handoffs are left out."""
        handoffs: dict[HandoffId, HandoffStanding] = {}
        for handoff_id, fields in hashes_of(self._connection, job_id, handoff_ids).items():
            handoffs[handoff_id] = handoff_standing(fields)
        return handoffs

    def delete(self, job_id: JobId, handoff_ids: Sequence[HandoffId]) -> None:
        """Remove everything of an ended job but the documents, which other jobs may use."""
        with in_our_words():
            pipe = self._connection.redis.pipeline(transaction=False)
            names = [keys.job(job_id), keys.log(job_id), keys.blobs(job_id), keys.fetched(job_id)]
            for handoff_id in handoff_ids:
                names += [keys.handoff(job_id, handoff_id), keys.turns(job_id, handoff_id)]
            pipe.unlink(*names)
            pipe.zrem(keys.JOBS, job_id)
            pipe.zrem(keys.DUE, job_id, *(f"{job_id}/{handoff_id}" for handoff_id in handoff_ids))
            pipe.execute()

    def queue(self, job_id: JobId, handoff_id: HandoffId, queue: str) -> bool:
        """Note that a role's handoff will be sent to this queue. Return False if it waits in the
        queue already or a process has claimed it.
        """
        order = [handoff_id, queue, int(ACTED_WITHIN_S * 1000)]
        return bool(self._connection.script("queue_role", [keys.job(job_id), keys.DUE], order))

    def sent(self, job_id: JobId, handoff_ids: Sequence[HandoffId]) -> None:
        """Note that the handoffs were sent to their queues, so that the sweep does not find them
        unless they are lost again.
        """
        self._connection.script("mark_sent", [keys.job(job_id), keys.DUE], list(handoff_ids))

    def sweep(self) -> SweepResult:
        """Return the jobs that need an evaluation now.

        Each job is returned once, until a supervisor has evaluated it or the wake-up is lost. Any
        number of sweepers share the work.
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
            job_id, _, handoff_id = member.decode().partition("/")
            suspects = due.setdefault(JobId(job_id), [])
            if handoff_id:
                suspects.append(HandoffId(handoff_id))
        return SweepResult(due, tuple(JobId(member.decode()) for member in fresh), bool(more))

    def forget_older_than(self, unix_s: float) -> None:
        """Drop jobs from the list that retention has removed. An open job may be older."""
        redis, left = self._connection.redis, 0
        with in_our_words():
            while old := redis.zrange(
                keys.JOBS, "-inf", unix_s * 1000, byscore=True, offset=left, num=FORGET_AT_ONCE
            ):
                pipe = redis.pipeline(transaction=False)
                for job_id in old:
                    pipe.exists(keys.job(job_id.decode()))
                gone = [
                    job_id for job_id, there in zip(old, pipe.execute(), strict=True) if not there
                ]
                left += len(old) - len(gone)
                if gone:
                    redis.zrem(keys.JOBS, *gone)


def job_standing(job_id: JobId, fields: Mapping[bytes, bytes], submitted_ms: float) -> JobStanding:
    """Return the standing of a job from the fields of its hash.

    A job that waits for a person's answer has the status `waiting`, also while its other steps run.
    `waits_for_person` in `parts/prelude.lua` is the same rule for the filter of the list.

    Args:
        submitted_ms: score of the job in the list of jobs; 0 for a job that is in no list.
    """

    def number(name: bytes) -> int:
        return int(fields.get(name, b"0"))

    def text(name: bytes) -> str:
        return fields.get(name, b"").decode()

    status, asks = JobStatus(text(b"status") or "queued"), text(b"asks")
    approval = text(b"approval:" + fields.get(b"asked_last", b""))
    is_waiting = not status.ended and bool(asks or approval)
    asked_at = number(b"asked_at") / 1000
    return JobStanding(
        job_id=job_id,
        status=JobStatus.WAITING if is_waiting else status,
        version=number(b"version"),
        title=text(b"title"),
        submitted_at=(int(submitted_ms) or number(b"submitted_at")) / 1000,
        turns=number(b"turns"),
        input_tokens=number(b"input_tokens"),
        output_tokens=number(b"output_tokens"),
        cost_microusd=None if b"unpriced" in fields else number(b"usd"),
        cancelled=b"cancelled" in fields,
        specialists=tuple(text(b"specialists").split()),
        cut_calls=number(b"cut_calls"),
        cut_tokens=number(b"cut_tokens"),
        cut_microusd=number(b"cut_usd"),
        asks=asks,
        approval=approval,
        asked_at=asked_at if is_waiting else None,
        teams_lack=text(b"teams_lack"),
        parent=JobId(fields[b"parent"].decode().partition("/")[0]) if b"parent" in fields else None,
        children=tuple(map(JobId, text(b"children").split())),
    )


def hashes_of(
    connection: Connection, job_id: JobId, handoff_ids: Sequence[HandoffId]
) -> dict[HandoffId, dict[bytes, bytes]]:
    """Return the hashes of handoffs, in one round trip; unknown handoffs are left out."""
    if not handoff_ids:
        return {}
    with in_our_words():
        pipe = connection.redis.pipeline(transaction=False)
        for handoff_id in handoff_ids:
            pipe.hgetall(keys.handoff(job_id, handoff_id))
        answers = pipe.execute()
    return {
        handoff_id: fields
        for handoff_id, fields in zip(handoff_ids, answers, strict=True)
        if fields
    }


def handoff_standing(fields: Mapping[bytes, bytes]) -> HandoffStanding:
    """Return the standing of a handoff from the fields of its hash."""

    def seconds(name: bytes) -> float | None:
        if name in fields:
            return int(fields[name]) / 1000
        return None

    def number(name: bytes) -> int:
        return int(fields.get(name, b"0"))

    return HandoffStanding(
        state=fields.get(b"state", b"issued").decode(),
        lease_until=seconds(b"lease"),
        lost=b"lost" in fields,
        held=b"held" in fields,
        parked_until=seconds(b"parked"),
        queue=fields.get(b"queue", b"").decode(),
        worker=fields.get(b"worker", b"").decode(),
        claims=number(b"claims"),
        lost_claims=number(b"lost_claims"),
        stints=past_claims_of(fields),
        claimed_at=seconds(b"claimed_at") if b"claimed_at" in fields else seconds(b"again_at"),
        turns=number(b"turns"),
        tool_calls=number(b"tools"),
        input_tokens=number(b"input_tokens"),
        output_tokens=number(b"output_tokens"),
        cost_microusd=None if b"unpriced" in fields else number(b"usd"),
        cut_calls=number(b"cut_calls"),
        cut_tokens=number(b"cut_tokens"),
        cut_microusd=number(b"cut_usd"),
        doing=fields.get(b"doing", b"").decode(),
        issued_at=seconds(b"issued_at"),
        started_at=seconds(b"started_at"),
        finished_at=seconds(b"finished_at"),
        beat_at=seconds(b"beat"),
    )
