"""The load of the fleet at one moment: busy slots, queue backlogs and provider limits. Reads only."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.fleet_history import MOST
from handoff_queue.shared.store.redis.connection import Connection, in_our_words
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.names import SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE, queue_of
from handoff_queue.shared.types.rate_limits import Allowance

MOST_AT_WORK = 5_000
"""Handoffs that are read, the first to be looked at by the sweeper first: some 20 ms of
Redis's time. Where more are out, whether at work, parked or lost, those at work among these
are told.
"""


@dataclass(frozen=True, slots=True)
class RunningHandoff:
    """A handoff that has a slot, or that waits for its provider and has given its slot back."""

    job_id: JobId
    handoff_id: HandoffId
    role: str
    worker: str
    doing: str
    turns: int
    """Turns that have ended."""
    since: float
    """Time of the first claim, in Unix seconds by Redis's clock, like all times here."""
    parked_until: float | None
    """End of the deferral; None if the handoff has a slot."""


@dataclass(frozen=True, slots=True)
class QueueBacklog:
    """Backlog in the queue of one role."""

    handoffs: int
    """Published, or held while the role is paused, and not claimed."""
    since: float | None
    """Time at which the oldest message was published."""


@dataclass(frozen=True, slots=True)
class RateLimitBucket:
    """A rate-limit bucket: one model under one account, as its provider counts calls."""

    account: str
    """A digest."""
    model: str
    limits: Mapping[str, Allowance]
    """Limits by name: requests, input, output (tokens), each in a window; empty: the provider names
    none.
    """
    refused_until: float | None
    """Time before which the provider takes no call; None if it takes calls."""
    why: str
    waiting: int
    """Calls that stand in its line."""

    @property
    def name(self) -> str:
        """Name of the rate-limit bucket, as a model call states it."""
        return f"{self.account}:{self.model}"


@dataclass(frozen=True, slots=True)
class FleetLoad:
    """Load of the whole fleet at one moment."""

    at: float
    open_jobs: int
    """Begun, or asked for, and not ended."""
    supervisors: int
    at_work: tuple[RunningHandoff, ...]
    waiting: Mapping[str, QueueBacklog] = field(default_factory=dict)
    """Backlog by queue, also of unserved queues. Queues are specialists, and `roles` for the roles
    of the supervisor.
    """
    lanes: tuple[RateLimitBucket, ...] = ()
    dead_letters: int = 0
    used_memory_bytes: int = 0
    max_memory_bytes: int = 0
    """0: no limit."""
    paused: Set[str] = frozenset()
    """Paused roles, served or not."""
    waiting_jobs: int = 0
    """The open jobs that wait for a person."""

    def busy(self, queue: str) -> int:
        """Return the number of slots that run messages of this queue."""
        total = 0
        for handoff in self.at_work:
            total += queue_of(handoff.role) == queue and handoff.parked_until is None
        return total

    def throttled(self, queue: str) -> int:
        total = 0
        for handoff in self.at_work:
            total += queue_of(handoff.role) == queue and handoff.parked_until is not None
        return total


class FleetLoadReader:
    """Reads the load of the fleet from the store."""

    def __init__(self, connection: Connection, window_s: float) -> None:
        self._connection = connection
        self.window_s = window_s
        """The time that a provider's limits are given for."""

    def now(self) -> FleetLoad:
        """Return the current load, in four round trips at any size.

        Raises:
            StoreUnavailable: Redis is unreachable.
        """
        at_ms, open_jobs, waiting_jobs, entries = self._connection.script(
            "running_handoffs",
            [keys.DUE, *(keys.WAITING + queue for queue in (SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE))],
            [MOST_AT_WORK],
        )
        at = int(at_ms) / 1000
        with in_our_words():
            pipe = self._connection.redis.pipeline(transaction=False)
            pipe.zrangebyscore(keys.SERVING, at_ms, "+inf")
            pipe.hkeys(keys.QUEUES)
            pipe.hkeys(keys.PAUSED)
            pipe.zrangebyscore(keys.LANES, at_ms, "+inf")
            pipe.llen(keys.DEAD)
            pipe.info("memory")
            serving, queues, paused, lanes, dead, memory = pipe.execute()
        members: list[Any] = []
        for member in serving:
            members.append(member.decode(errors="replace").partition("/")[0])
        roles = {*members, *(queue.decode(errors="replace") for queue in queues)} - {
            SUPERVISOR_QUEUE,
            SUBMISSIONS_QUEUE,
        }
        return FleetLoad(
            at=at,
            open_jobs=int(open_jobs),
            waiting_jobs=int(waiting_jobs),
            supervisors=members.count(SUPERVISOR_QUEUE),
            at_work=tuple(_at_work(*entry) for entry in entries),
            waiting=self._waiting(sorted(roles)),
            paused=frozenset(role.decode(errors="replace") for role in paused),
            lanes=self._lanes([lane.decode(errors="replace") for lane in lanes], at),
            dead_letters=int(dead),
            used_memory_bytes=int(memory.get("used_memory", 0)),
            max_memory_bytes=int(memory.get("maxmemory", 0)),
        )

    def _waiting(self, roles: list[str]) -> dict[str, QueueBacklog]:
        with in_our_words():
            pipe = self._connection.redis.pipeline(transaction=False)
            for role in roles:
                for waiting in (keys.WAITING + role, keys.HELD + role):
                    pipe.zcard(waiting)
                    pipe.zrange(waiting, 0, 0, withscores=True)
            answers = iter(pipe.execute() if roles else [])
        backlogs = {}
        for role in roles:
            counts, oldest = zip(*((next(answers), next(answers)) for _ in range(2)), strict=True)
            since = min((score / 1000 for scores in oldest for _, score in scores), default=None)
            backlogs[role] = QueueBacklog(sum(map(int, counts)), since)
        return backlogs

    def _lanes(self, names: list[str], at: float) -> tuple[RateLimitBucket, ...]:
        with in_our_words():
            pipe = self._connection.redis.pipeline(transaction=False)
            for name in names:
                pipe.hgetall(keys.pace(name))
                pipe.zcard(f"{keys.pace(name)}:line")
            if names:
                answers = pipe.execute()
            else:
                answers = []
        return tuple(
            self._lane(name, fields, int(line), at)
            for name, fields, line in zip(names, answers[::2], answers[1::2], strict=True)
        )

    def _lane(
        self, name: str, fields: Mapping[bytes, bytes], line: int, at: float
    ) -> RateLimitBucket:
        account, _, model = name.partition(":")
        until = _figure(fields, "until") / 1000
        limits = {}
        for bucket in ("requests", "input", "output"):
            if limit := int(_figure(fields, bucket)):
                since = at - _figure(fields, "at") / 1000
                level = _figure(fields, f"{bucket}_level") + limit * max(0.0, since) / self.window_s
                limits[bucket] = Allowance(limit, max(0, min(limit, int(level))))
        return RateLimitBucket(
            account,
            model,
            limits,
            until if until > at else None,
            fields.get(b"why", b"").decode(errors="replace"),
            line,
        )


def _figure(fields: Mapping[bytes, bytes], name: str) -> float:
    """Return a stored figure of a lane; 0: there is none, or it is no finite number."""
    try:
        figure = float(fields.get(name.encode(), b"0"))
    except ValueError:
        return 0.0
    if abs(figure) <= MOST:
        return figure
    return 0.0


def _at_work(
    job: bytes,
    handoff: bytes,
    role: bytes,
    parked: bytes,
    worker: bytes,
    doing: bytes,
    turns: bytes,
    since: bytes,
) -> RunningHandoff:
    return RunningHandoff(
        job_id=JobId(job.decode()),
        handoff_id=HandoffId(handoff.decode()),
        role=role.decode(),
        worker=worker.decode(),
        doing=doing.decode(),
        turns=int(turns),
        since=float(since) / 1000,
        parked_until=float(parked) / 1000 if parked else None,
    )
