"""Presence: the specialists that live workers serve, and whether a supervisor runs.

Each process announces itself with an expiry, so a dead process is forgotten.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.dead_letters import readable
from handoff_queue.shared.store.pauses import Pause, pause_in, pauses_in
from handoff_queue.shared.store.redis.connection import Connection, in_our_words
from handoff_queue.shared.types.errors import MalformedMessage
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.names import SUPERVISOR_QUEUE, queue_of
from handoff_queue.shared.types.presence import Announcement, Node
from handoff_queue.shared.types.specialist import SpecialistSpec

ANNOUNCED_FOR_S = 15
"""Seconds that an announcement holds; a process repeats it every third of that time. This equals
the default lease, so a dead worker is missed at about the same time as its handoffs.
"""
FOUND_WITHIN_S = 5.0
"""Seconds that a starting process waits for its own announcement before it reports that it is
ready. An unreachable Redis does not stop the start.
"""
WITHDRAWN_WITHIN_S = 2.0
"""Seconds that an ending process waits until its announcement is withdrawn; otherwise the
announcement expires.
"""
GOOD_FOR_S = 1.0
"""Seconds for which a process uses a reading again."""


MOST_ANNOUNCED_BYTES = 8 * 2**20
"""An announcement that is longer is not read. One with 100 specialists of the longest
instructions has 6 MB.
"""


@dataclass(frozen=True, slots=True)
class LiveProcess:
    """A worker or a supervisor that announced itself within `ANNOUNCED_FOR_S`."""

    kind: Literal["worker", "supervisor"]
    name: str
    node: Node | None
    """None if this version cannot read the announcement."""


@dataclass(frozen=True, slots=True)
class ServedSpecialist:
    """A specialist that at least one worker serves."""

    spec: SpecialistSpec
    digest: str
    workers: tuple[str, ...]
    slots: int
    queued: int
    """Messages in its queue, and handoffs that are held while it is paused."""
    models: tuple[str, ...] = ()
    paused: Pause | None = None
    effects: frozenset[str] = frozenset()
    """The tools of the specialist that are not safe to repeat, or its Celery task if that is not.
    """


def acting(served: Mapping[str, ServedSpecialist]) -> frozenset[str]:
    """Return the specialists that have a tool with effects."""
    items: set[str] = set()
    for name, served_specialist in served.items():
        if served_specialist.effects:
            items.add(name)
    return frozenset(items)


@dataclass(frozen=True, slots=True)
class Presence:
    """The live processes at one moment, and the handoffs that wait for a missing one."""

    queues: frozenset[str]
    """Queues that a process serves: names of specialists, and `supervisor`."""
    unclaimed: Mapping[JobId, Mapping[HandoffId, str]] = field(default_factory=dict)
    """Handoffs of the requested jobs that wait for an unserved specialist or a paused role, with
    the name of that role.
    """
    paused: Mapping[str, Pause] = field(default_factory=dict)
    """Pauses by role."""


class PresenceStore:
    """The announcements."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._read_at = -GOOD_FOR_S
        self._served: dict[str, ServedSpecialist] = {}

    def announce(self, announcement: Announcement) -> None:
        """Say that this worker is there, for another `ANNOUNCED_FOR_S`."""
        with in_our_words():
            pipe = self._connection.redis.pipeline(transaction=False)
            pipe.set(keys.worker(announcement.worker), announcement.to_json(), ex=ANNOUNCED_FOR_S)
            self._serve(pipe, _members(announcement))
            pipe.execute()

    def withdraw(self, announcement: Announcement) -> None:
        """Withdraw the announcement of a worker that takes no more messages."""
        with in_our_words():
            pipe = self._connection.redis.pipeline(transaction=False)
            pipe.delete(keys.worker(announcement.worker))
            pipe.zrem(keys.SERVING, "", *_members(announcement))
            pipe.execute()

    def announce_supervisor(self, name: str, node: Node | None = None) -> int:
        """Announce this supervisor for another `ANNOUNCED_FOR_S`.

        Return the time since which the caps of a day hold, Unix ms by Redis's clock, as
        `Days.set_caps` did; 0: there are no caps.
        """
        with in_our_words():
            pipe = self._connection.redis.pipeline(transaction=False)
            if node is not None:
                pipe.set(keys.supervisor(name), node.to_json(), ex=ANNOUNCED_FOR_S)
            self._serve(pipe, [f"{SUPERVISOR_QUEUE}/{name}"])
            pipe.hget(keys.CAPS, "since")
            since = pipe.execute()[-1] or b"0"
        return (
            int(since) if since.isdigit() else 0
        )  # unreadable: this supervisor sets its caps again

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
        """Return the live processes, and the waiting handoffs, in one round trip.

        A handoff is waiting if no live process serves its queue. Handoffs cost almost nothing. For
        jobs, the script reads all messages of unserved queues, or the first `most` messages of
        each.
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
            queue, job_id, handoff_id = member.decode(errors="replace").split("/", 2)
            unclaimed.setdefault(JobId(job_id), {})[HandoffId(handoff_id)] = queue
        pauses = pauses_in(dict(zip(paused[::2], paused[1::2], strict=True)))
        names = frozenset(queue.decode(errors="replace") for queue in served)
        return Presence(names, unclaimed, pauses)

    def announcements(self) -> list[Announcement]:
        """Return the announcements of the live workers. Announcements that this version cannot read
        are skipped.
        """
        names = {name for queue, name in self._serving() if queue != SUPERVISOR_QUEUE}
        stored = self._announced([keys.worker(name) for name in sorted(names)])
        return readable(filter(None, stored), Announcement.from_json, keys.worker("*"))

    def processes(self) -> list[LiveProcess]:
        """Return the live workers and supervisors, by kind and name."""
        serving = self._serving()
        supervisors = sorted({name for queue, name in serving if queue == SUPERVISOR_QUEUE})
        workers = sorted({name for queue, name in serving if queue != SUPERVISOR_QUEUE})
        stored = iter(
            self._announced([*map(keys.supervisor, supervisors), *map(keys.worker, workers)])
        )
        return [
            *(LiveProcess("supervisor", name, _node_in(next(stored))) for name in supervisors),
            *(LiveProcess("worker", name, _node_in(next(stored))) for name in workers),
        ]

    def _serving(self) -> list[tuple[str, str]]:
        """Return each queue with a live process that serves it."""
        now_ms = self._connection.now() * 1000
        with in_our_words():
            members = self._connection.redis.zrangebyscore(keys.SERVING, now_ms, "+inf")
        parts = (member.decode(errors="replace").partition("/") for member in members)
        items: list[tuple[str, str]] = []
        for queue, _, name in parts:
            items.append((queue, name))
        return items

    def _announced(self, announced_at: Sequence[str]) -> list[bytes | None]:
        """Return the value at each key; None if it is missing or larger than
        `MOST_ANNOUNCED_BYTES`.
        """
        with in_our_words():
            pipe = self._connection.redis.pipeline(transaction=False)
            for key in announced_at:
                pipe.getrange(key, 0, MOST_ANNOUNCED_BYTES)
            if announced_at:
                stored = pipe.execute()
            else:
                stored = []
        items: list[bytes | None] = []
        for text in stored:
            items.append(text if 0 < len(text) <= MOST_ANNOUNCED_BYTES else None)
        return items

    def served(self) -> dict[str, ServedSpecialist]:
        """Return each served specialist by name. If workers differ, the version that most workers
        serve is returned.
        """
        if time.monotonic() - self._read_at >= GOOD_FOR_S:
            self._served = self._read()
            self._read_at = time.monotonic()
        return self._served

    def _read(self) -> dict[str, ServedSpecialist]:
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
            if names:
                answers = pipe.execute()
            else:
                answers = []
        specialists = {}
        for name, depth, held, paused in zip(
            names, answers[::3], answers[1::3], answers[2::3], strict=True
        ):
            digest, serving = max(by_name[name].items(), key=lambda item: (len(item[1]), item[0]))
            everyone = [announcement for one in by_name[name].values() for announcement, _ in one]
            specialists[name] = ServedSpecialist(
                spec=serving[0][1],
                digest=digest,
                workers=tuple(sorted(one.worker for one in everyone)),
                slots=sum(max(0, one.slots - one.lost_slots) for one in everyone),
                queued=int(depth) + int(held),
                models=tuple(sorted({one.model for one in everyone})),
                paused=pause_in(paused) if paused else None,
                effects=_effects(serving[0][1], everyone),
            )
        return specialists


def _effects(spec: SpecialistSpec, announcements: Iterable[Announcement]) -> frozenset[str]:
    """Return the tools of a specialist that a worker announces as not safe to repeat, or its task."""
    if spec.task_with_effect is not None:
        return frozenset((spec.task_with_effect,))
    named: set[str] = set()
    for announcement in announcements:
        for tool in announcement.effects:
            named.add(tool)
    return frozenset(named.intersection(spec.tools))


def _node_in(text: bytes | None) -> Node | None:
    try:
        return Node.from_json(text or b"")
    except MalformedMessage:
        return None


def _members(announcement: Announcement) -> list[str]:
    members: list[str] = []
    for spec in announcement.specialists:
        members.append(f"{spec.name}/{announcement.worker}")
    return members
