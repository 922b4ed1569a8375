"""Who is there: what specialists live workers serve, and whether there is a supervisor.

Each process announces itself, and what it says holds for a while only: who dies is forgotten.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from shared.ledger import keys
from shared.ledger.connection import Connection, in_our_words
from shared.ledger.pauses import Pause
from shared.wire.errors import MalformedMessage
from shared.wire.ids import HandoffId, JobId
from shared.wire.message import Message
from shared.wire.names import SUPERVISOR_QUEUE, queue_of
from shared.wire.specialist import SpecialistSpec

ANNOUNCED_FOR_S = 15
"""An announcement is repeated every third of it. As long as a lease is by default: a dead worker is missed about when its handoffs are."""
FOUND_WITHIN_S = 5.0
"""A process that starts waits at most this long until it has announced itself, before it says that it is ready: a Redis that is away is no
reason not to start."""
WITHDRAWN_WITHIN_S = 2.0
"""A process that ends waits at most this long until its announcement is taken back; what is not runs out."""
GOOD_FOR_S = 1.0
"""How long a process believes what it has read."""


Kind = TypeVar("Kind", bound=Message)


class Announcement(Message):
    """What one worker process says of itself."""

    worker: str
    specialists: tuple[SpecialistSpec, ...]
    slots: int
    """Handoffs that it runs at once."""
    model: str
    """The model behind it: `offline`, or the provider."""
    effects: tuple[str, ...] = ()
    """The worker's tools that are not safe to repeat."""
    lost_slots: int = 0
    """Slots that take no handoff any more until the process starts again, see `shared.slots`."""
    node: str = ""
    """The worker's name in Celery: `name@host`."""
    broker: str = ""
    """The URL that its Celery app takes messages from, without a password."""


class Node(Message):
    """A worker or a supervisor as Celery knows it, and the broker that it uses."""

    node: str
    """Its name in Celery: `name@host`."""
    broker: str
    """The URL that its Celery app takes messages from, without a password."""


@dataclass(frozen=True, slots=True)
class Served:
    """One specialist that somebody serves."""

    spec: SpecialistSpec
    digest: str
    workers: tuple[str, ...]
    slots: int
    queued: int
    """Messages in its queue, and handoffs that are held while it is paused."""
    models: tuple[str, ...] = ()
    paused: Pause | None = None
    effects: frozenset[str] = frozenset()
    """The tools of the specialist that are not safe to repeat."""


def acting(served: Mapping[str, Served]) -> frozenset[str]:
    """Return the specialists that have a tool with effects."""
    return frozenset(name for name, one in served.items() if one.effects)


@dataclass(frozen=True, slots=True)
class Presence:
    """Who is there at one moment, and what waits for somebody who is not."""

    queues: frozenset[str]
    """That somebody serves: specialists' names, and `supervisor`."""
    unclaimed: Mapping[JobId, Mapping[HandoffId, str]] = field(default_factory=dict)
    """Handoffs that wait for a specialist whom nobody serves, or for a role that is paused, and for whom. Only of what was asked for."""
    paused: Mapping[str, Pause] = field(default_factory=dict)
    """By role."""


class Roles:
    """The announcements."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._read_at = -GOOD_FOR_S
        self._served: dict[str, Served] = {}

    def announce(self, announcement: Announcement) -> None:
        """Say that this worker is there, for another `ANNOUNCED_FOR_S`."""
        with in_our_words():
            pipe = self._connection.redis.pipeline(transaction=False)
            pipe.set(keys.worker(announcement.worker), announcement.to_json(), ex=ANNOUNCED_FOR_S)
            self._serve(pipe, _members(announcement))
            pipe.execute()

    def withdraw(self, announcement: Announcement) -> None:
        """This worker takes nothing any more."""
        with in_our_words():
            pipe = self._connection.redis.pipeline(transaction=False)
            pipe.delete(keys.worker(announcement.worker))
            pipe.zrem(keys.SERVING, "", *_members(announcement))
            pipe.execute()

    def announce_supervisor(self, name: str, node: Node | None = None) -> int:
        """Announce this supervisor for another `ANNOUNCED_FOR_S`.

        Return the time since which the caps of a day hold, Unix ms by Redis's clock, as `Days.set_caps` did; 0: there are no caps.
        """
        with in_our_words():
            pipe = self._connection.redis.pipeline(transaction=False)
            if node is not None:
                pipe.set(keys.supervisor(name), node.to_json(), ex=ANNOUNCED_FOR_S)
            self._serve(pipe, [f"{SUPERVISOR_QUEUE}/{name}"])
            pipe.hget(keys.CAPS, "since")
            return int(pipe.execute()[-1] or 0)

    def withdraw_supervisor(self, name: str) -> None:
        """Take the announcement of this supervisor back: it begins nothing any more."""
        with in_our_words():
            pipe = self._connection.redis.pipeline(transaction=False)
            pipe.zrem(keys.SERVING, f"{SUPERVISOR_QUEUE}/{name}")
            pipe.delete(keys.supervisor(name))
            pipe.execute()

    def _serve(self, pipe: Any, members: Sequence[str]) -> None:
        now = self._connection.now()
        pipe.zremrangebyscore(keys.SERVING, "-inf", now * 1000)
        if members:
            pipe.zadd(keys.SERVING, dict.fromkeys(members, (now + ANNOUNCED_FOR_S) * 1000))
            pipe.expire(keys.SERVING, ANNOUNCED_FOR_S)

    def presence(
        self,
        job_ids: Sequence[JobId] = (),
        handoffs: Sequence[tuple[JobId, HandoffId]] = (),
        most: int | None = None,
    ) -> Presence:
        """Who is there now, and what of these jobs, or which of these handoffs, waits for somebody who is not: one round trip.

        Handoffs cost next to nothing; for jobs, everything that waits in queues that nobody serves is gone through; or the
        first `most` of each.
        """
        asked = [
            most - 1 if most else -1,
            *job_ids,
            *(f"{job_id}/{handoff_id}" for job_id, handoff_id in handoffs),
        ]
        served, waiting, paused = self._connection.script(
            "presence", [keys.SERVING, keys.QUEUES, keys.PAUSED], asked
        )
        unclaimed: dict[JobId, dict[HandoffId, str]] = {}
        for member in waiting:
            queue, job_id, handoff_id = member.decode().split("/")
            unclaimed.setdefault(JobId(job_id), {})[HandoffId(handoff_id)] = queue
        pauses = {
            role.decode(): Pause.from_json(text)
            for role, text in zip(paused[::2], paused[1::2], strict=True)
        }
        return Presence(frozenset(queue.decode() for queue in served), unclaimed, pauses)

    def announcements(self) -> list[Announcement]:
        """Return what the live workers announce, without announcements of another version that do not parse."""
        workers = {name for queue, name in self._serving() if queue != SUPERVISOR_QUEUE}
        return self._announced(Announcement, [keys.worker(name) for name in sorted(workers)])

    def nodes(self) -> list[Node]:
        """Return the nodes of the live workers and supervisors."""
        workers = [Node(node=worker.node, broker=worker.broker) for worker in self.announcements()]
        names = sorted(name for queue, name in self._serving() if queue == SUPERVISOR_QUEUE)
        return [*workers, *self._announced(Node, [keys.supervisor(name) for name in names])]

    def _serving(self) -> list[tuple[str, str]]:
        """Return each queue with a live process that serves it."""
        with in_our_words():
            members = self._connection.redis.zrange(keys.SERVING, 0, -1)
        parts = (member.decode().partition("/") for member in members)
        return [(queue, name) for queue, _, name in parts]

    def _announced(self, kind: type[Kind], announced_at: Sequence[str]) -> list[Kind]:
        with in_our_words():
            texts = self._connection.redis.mget(announced_at) if announced_at else []
        parsed = []
        for text in filter(None, texts):
            with suppress(MalformedMessage):
                parsed.append(kind.from_json(text))
        return parsed

    def served(self) -> dict[str, Served]:
        """Every specialist that a live worker serves, by name. Where workers differ, the version that most of them serve."""
        if time.monotonic() - self._read_at >= GOOD_FOR_S:
            self._served = self._read()
            self._read_at = time.monotonic()
        return self._served

    def _read(self) -> dict[str, Served]:
        by_name: dict[str, dict[str, list[tuple[Announcement, SpecialistSpec]]]] = {}
        for announcement in self.announcements():
            for spec in announcement.specialists:
                by_name.setdefault(spec.name, {}).setdefault(spec.content_digest, []).append(
                    (announcement, spec)
                )
        names = sorted(by_name)
        with in_our_words():
            pipe = self._connection.redis.pipeline(transaction=False)
            for name in names:
                pipe.llen(queue_of(name))
                pipe.zcard(keys.HELD + name)
                pipe.hget(keys.PAUSED, name)
            answers = pipe.execute() if names else []
        found = {}
        for name, depth, held, paused in zip(
            names, answers[::3], answers[1::3], answers[2::3], strict=True
        ):
            digest, serving = max(by_name[name].items(), key=lambda item: (len(item[1]), item[0]))
            everyone = [announcement for one in by_name[name].values() for announcement, _ in one]
            found[name] = Served(
                spec=serving[0][1],
                digest=digest,
                workers=tuple(sorted(one.worker for one in everyone)),
                slots=sum(max(0, one.slots - one.lost_slots) for one in everyone),
                queued=int(depth) + int(held),
                models=tuple(sorted({one.model for one in everyone})),
                paused=Pause.from_json(paused) if paused else None,
                effects=frozenset(serving[0][1].tools).intersection(
                    *[{tool for one in everyone for tool in one.effects}]
                ),
            )
        return found


def _members(announcement: Announcement) -> list[str]:
    return [f"{spec.name}/{announcement.worker}" for spec in announcement.specialists]
