"""The load of the fleet at one moment: busy slots, queue backlogs and provider limits. Reads
only.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from itertools import starmap

from redis.exceptions import ResponseError

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.presence import (
    MAX_ANNOUNCED_BYTES,
    MAX_ANNOUNCEMENT_MS,
    MAX_READ,
    parse_node,
)
from handoff_queue.shared.store.redis.connection import Connection, ScriptCall
from handoff_queue.shared.store.script_arguments import (
    MAX_EXACT_INTEGER,
    MAX_LINE_BYTES,
    convert_score,
    iterate_rows,
    parse_name,
)
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.names import SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE, get_queue
from handoff_queue.shared.types.presence import EQUAL_HANDOFF, WAITS_FOR, count_role_slots
from handoff_queue.shared.types.rate_limits import Allowance

MAX_DUE_HANDOFFS = 5_000
"""Due handoffs whose state is read, the earliest due time first: about 20 ms of Redis's time.
If more handoffs are due, the load reports only the running and deferred handoffs among these.
"""

MAX_BUCKETS = 1_000
"""Rate-limit buckets that are read. A worker may write any number of names."""

_LIMIT_NAMES = ("requests", "input", "output")
_BUCKET_FIELDS = (
    "until",
    "why",
    "at",
    *_LIMIT_NAMES,
    *(f"{name}_level" for name in _LIMIT_NAMES),
)
"""Fields of a bucket that are read. A worker may write any number of other fields."""

ANSWERS_OF_AN_AGENT = 4
"""Answers of Redis about the backlog of one agent."""


@dataclass(frozen=True, slots=True)
class RunningHandoff:
    """A handoff that has a slot, or a deferred handoff, which waits for its provider without a
    slot.
    """

    job_id: JobId
    handoff_id: HandoffId
    agent: str
    worker: str
    doing: str
    turns: int
    """Turns that have ended."""
    since: float
    """Time of the first claim, in Unix seconds by Redis's clock, like all times here."""
    deferred_until: float | None
    """End of the deferral; None if the handoff has a slot."""

    @property
    def waits_for_equal_run(self) -> bool:
        """Return whether it waits for the run of an equal handoff."""
        return self.deferred_until is not None and self.doing.startswith(EQUAL_HANDOFF)


@dataclass(frozen=True, slots=True)
class QueueBacklog:
    """Backlog in the queue of one agent."""

    handoffs: int
    """Handoffs that are published, or paused with their agent, and not claimed."""
    since: float | None
    """Time since which the oldest handoff waits; None if none waits."""


@dataclass(frozen=True, slots=True)
class RateLimitBucket:
    """A rate-limit bucket: one model under one account, as its provider counts calls."""

    account: str
    """Digest of provider, address and key."""
    model: str
    limits: Mapping[str, Allowance]
    """Limits by name: requests, input, output (tokens), each in a window; empty: the provider
    names none.
    """
    refused_until: float | None
    """Time before which the provider takes no call; None if it takes calls."""
    why: str
    """Reason of the last refusal."""
    waiting: int
    """Calls that wait in its line."""

    @property
    def name(self) -> str:
        """Name of the rate-limit bucket, as a model call states it."""
        return f"{self.account}:{self.model}"


@dataclass(frozen=True, slots=True)
class FleetLoad:
    """Load of the whole fleet at one moment."""

    at: float
    open_jobs: int
    """Jobs that were submitted and have not ended."""
    supervisors: int
    at_work: tuple[RunningHandoff, ...]
    """Running and deferred handoffs."""
    waiting: Mapping[str, QueueBacklog] = field(default_factory=dict)
    """Backlog by queue, also of unserved queues. Queues are specialists, and `roles` for the
    roles of the supervisor.
    """
    buckets: tuple[RateLimitBucket, ...] = ()
    dead_letters: int = 0
    used_memory_bytes: int = 0
    max_memory_bytes: int = 0
    """0: no limit."""
    paused: Set[str] = frozenset()
    """Paused agents, served or not."""
    waiting_jobs: int = 0
    """Open jobs that wait for a person."""
    role_slots: int = 0
    """Slots of the live supervisors for their roles."""

    def count_busy_slots(self, queue: str) -> int:
        """Return the number of slots that run handoffs of this queue."""
        return len([each for each in self._read_handoffs(queue) if each.deferred_until is None])

    def count_deferred(self, queue: str) -> int:
        """Return the number of deferred handoffs of this queue."""
        return len([each for each in self._read_handoffs(queue) if each.deferred_until is not None])

    def count_rate_limited(self, queue: str) -> int:
        """Return the number of handoffs of this queue that are deferred because of rate limits. A
        handoff that waits for an approval or a batch needs no slot.
        """
        limited_handoffs: list[RunningHandoff] = []
        for handoff in self._read_handoffs(queue):
            if handoff.deferred_until is not None and not handoff.doing.startswith(WAITS_FOR):
                limited_handoffs.append(handoff)
        return len(limited_handoffs)

    def _read_handoffs(self, queue: str) -> list[RunningHandoff]:
        """Return the running and deferred handoffs of a queue."""
        return [handoff for handoff in self.at_work if get_queue(handoff.agent) == queue]


class FleetLoadReader:
    """Reads the load of the fleet from the store."""

    def __init__(self, connection: Connection, window_s: float) -> None:
        self._connection = connection
        self.window_s = window_s
        """Seconds of the window that a provider's limits refer to."""

    def now(self, *, counts_jobs: bool = True) -> FleetLoad:
        """Return the current load, in six round trips at any size.

        Args:
            counts_jobs: False to read no open job; `open_jobs` and `waiting_jobs` are 0 then.

        Raises:
            StoreUnavailable: Redis is unreachable.
        """
        script_keys = [keys.DUE, keys.QUEUES]
        if counts_jobs:
            script_keys += [keys.WAITING + SUPERVISOR_QUEUE, keys.WAITING + SUBMISSIONS_QUEUE]
        at_ms, open_jobs, waiting_jobs, entries = self._connection.run_script(
            "running_handoffs", script_keys, [MAX_DUE_HANDOFFS, int(counts_jobs)]
        )
        at = int(at_ms) / 1000
        serving, buckets = self._connection.run_script(
            "list_members",
            [keys.SERVING, keys.BUCKETS],
            [at_ms, int(at_ms) + MAX_ANNOUNCEMENT_MS, MAX_READ, at_ms, "+inf", MAX_BUCKETS],
        )
        with self._connection.translate_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            pipe.hkeys(keys.QUEUES)
            pipe.hkeys(keys.PAUSED)
            pipe.llen(keys.DEAD)
            pipe.info("memory")
            queues, paused_agents, dead, memory = pipe.execute()
        served: list[str] = []
        supervisors: list[str] = []
        for member in serving:
            queue, _, process = parse_name(member).partition("/")
            served.append(queue)
            if queue == SUPERVISOR_QUEUE:
                supervisors.append(process)
        agents = {*served, *map(parse_name, queues)} - {SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE}
        return FleetLoad(
            at=at,
            open_jobs=int(open_jobs),
            waiting_jobs=int(waiting_jobs),
            supervisors=len(supervisors),
            role_slots=self._count_role_slots(supervisors),
            at_work=tuple(starmap(_build_running_handoff, entries)),
            waiting=self._read_backlogs(sorted(agents)),
            paused=frozenset(map(parse_name, paused_agents)),
            buckets=self._read_buckets(list(map(parse_name, buckets)), at),
            dead_letters=int(dead),
            used_memory_bytes=int(memory.get("used_memory", 0)),
            max_memory_bytes=int(memory.get("maxmemory", 0)),
        )

    def _read_backlogs(self, agents: list[str]) -> dict[str, QueueBacklog]:
        """Return the backlog of each agent's queue, in one round trip. An agent whose queue cannot
        be read is left out: a worker can announce a name whose queue this process may not read.
        """
        with self._connection.translate_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            for agent in agents:
                for waiting in (keys.WAITING + agent, keys.PAUSED_HANDOFFS + agent):
                    pipe.zcard(waiting)
                    pipe.zrange(waiting, 0, 0, withscores=True)
            answers = pipe.execute(raise_on_error=False)
        backlogs: dict[str, QueueBacklog] = {}
        for agent, parts in zip(agents, iterate_rows(answers, ANSWERS_OF_AN_AGENT), strict=True):
            is_refused = self._connection.queue_access.is_refused(agent, parts)
            if is_refused or any(isinstance(part, ResponseError) for part in parts):
                continue
            published_count, oldest_published, paused_count, oldest_paused = parts
            waiting_since: list[float] = []
            for _, score_ms in (*oldest_published, *oldest_paused):
                at = convert_score(score_ms)
                if at is not None:
                    waiting_since.append(at)
            since = min(waiting_since, default=None)
            backlogs[agent] = QueueBacklog(int(published_count) + int(paused_count), since)
        return backlogs

    def _count_role_slots(self, supervisors: list[str]) -> int:
        """Return the slots of these supervisors for their roles, in one round trip."""
        with self._connection.translate_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            for name in supervisors:
                pipe.getrange(keys.supervisor(name), 0, MAX_ANNOUNCED_BYTES)
            announcements = pipe.execute()
        total = 0
        for text in announcements:
            node = parse_node(text)
            if node is not None:
                total += count_role_slots(node.slots)
        return total

    def _read_buckets(self, names: list[str], at: float) -> tuple[RateLimitBucket, ...]:
        """Return the rate-limit buckets of these names, in two round trips."""
        calls: list[ScriptCall] = []
        for name in names:
            calls.append(([keys.bucket(name)], [MAX_LINE_BYTES, *_BUCKET_FIELDS]))
        answers = self._connection.run_script_for_all("short_fields", calls)
        with self._connection.translate_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            for name in names:
                pipe.zcard(keys.bucket_line(name))
            lines = pipe.execute()
        buckets: list[RateLimitBucket] = []
        for name, answer, line in zip(names, answers, lines, strict=True):
            fields = {key.decode(): value for key, value in iterate_rows(answer, 2)}
            buckets.append(self._build_bucket(name, fields, int(line), at))
        return tuple(buckets)

    def _build_bucket(
        self, name: str, fields: Mapping[str, bytes], line: int, at: float
    ) -> RateLimitBucket:
        """Return a bucket from the fields of its hash, with its refill up to `at`.

        Args:
            fields: without the fields that are missing or long.
            line: number of waiting calls.
        """
        account, _, model = name.partition(":")
        until = _parse_figure(fields, "until") / 1000
        since_s = max(0.0, at - _parse_figure(fields, "at") / 1000)
        limits: dict[str, Allowance] = {}
        for limit_name in _LIMIT_NAMES:
            limit = int(_parse_figure(fields, limit_name))
            if limit:
                stored_level = _parse_figure(fields, f"{limit_name}_level")
                level = int(stored_level + limit * since_s / self.window_s)
                limits[limit_name] = Allowance(limit, max(0, min(limit, level)))
        return RateLimitBucket(
            account,
            model,
            limits,
            until if until > at else None,
            fields.get("why", b"").decode(errors="replace"),
            line,
        )


def _parse_figure(fields: Mapping[str, bytes], name: str) -> float:
    """Return a stored figure of a bucket; 0 if it is missing or not a number up to
    `MAX_EXACT_INTEGER`.
    """
    try:
        figure = float(fields.get(name, b"0"))
    except ValueError:
        return 0.0
    if abs(figure) <= MAX_EXACT_INTEGER:
        return figure
    return 0.0


def _build_running_handoff(
    job: bytes,
    handoff: bytes,
    agent: bytes,
    deferred_until_ms: bytes,
    worker: bytes,
    doing: bytes,
    turns: bytes,
    since: bytes,
) -> RunningHandoff:
    """Return a handoff from an entry of the answer of `running_handoffs.lua`."""
    return RunningHandoff(
        job_id=JobId(job.decode()),
        handoff_id=HandoffId(handoff.decode()),
        agent=agent.decode(),
        worker=parse_name(worker),
        doing=parse_name(doing),
        turns=int(turns),
        since=float(since) / 1000,
        deferred_until=float(deferred_until_ms) / 1000 if deferred_until_ms else None,
    )
