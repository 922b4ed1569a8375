"""What specialists live workers serve. Each worker announces itself with a TTL: who dies is forgotten."""

from __future__ import annotations

import time
from dataclasses import dataclass

from shared.ledger import keys
from shared.ledger.connection import Connection, in_our_words
from shared.wire.errors import MalformedMessage
from shared.wire.message import Message
from shared.wire.names import queue_of
from shared.wire.specialist import SpecialistSpec

ANNOUNCED_FOR_S = 30
"""An announcement is repeated every third of it."""
GOOD_FOR_S = 1.0
"""How long a process believes what it has read."""


class Announcement(Message):
    """What one worker process says of itself."""

    worker: str
    specialists: tuple[SpecialistSpec, ...]
    slots: int
    """Handoffs that it runs at once."""
    model: str
    """The model behind it: `offline`, or the provider."""


@dataclass(frozen=True, slots=True)
class Served:
    """One specialist that somebody serves."""

    spec: SpecialistSpec
    digest: str
    workers: tuple[str, ...]
    slots: int
    queued: int
    """Messages in its queue."""
    models: tuple[str, ...] = ()


class Roles:
    """The announcements."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._read_at = -GOOD_FOR_S
        self._served: dict[str, Served] = {}

    def announce(self, announcement: Announcement) -> None:
        """Say that this worker is there, for another `ANNOUNCED_FOR_S`."""
        until = (self._connection.now() + ANNOUNCED_FOR_S) * 1000
        with in_our_words():
            pipe = self._connection.redis.pipeline(transaction=False)
            pipe.set(keys.worker(announcement.worker), announcement.to_json(), ex=ANNOUNCED_FOR_S)
            pipe.zadd(keys.WORKERS, {announcement.worker: until})
            pipe.zremrangebyscore(keys.WORKERS, "-inf", until - 2 * ANNOUNCED_FOR_S * 1000)
            pipe.expire(keys.WORKERS, 10 * ANNOUNCED_FOR_S)
            pipe.execute()

    def withdraw(self, worker: str) -> None:
        """This worker takes nothing any more."""
        with in_our_words():
            pipe = self._connection.redis.pipeline(transaction=False)
            pipe.delete(keys.worker(worker))
            pipe.zrem(keys.WORKERS, worker)
            pipe.execute()

    def announcements(self) -> list[Announcement]:
        """Of all live workers; those of another version that do not parse are left out."""
        with in_our_words():
            workers = self._connection.redis.zrange(keys.WORKERS, 0, -1)
            texts = self._connection.redis.mget([keys.worker(worker.decode()) for worker in workers]) if workers else []
        found = []
        for text in texts:
            if text is not None:
                try:
                    found.append(Announcement.from_json(text))
                except MalformedMessage:
                    continue
        return found

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
                by_name.setdefault(spec.name, {}).setdefault(spec.content_digest, []).append((announcement, spec))
        names = sorted(by_name)
        with in_our_words():
            pipe = self._connection.redis.pipeline(transaction=False)
            for name in names:
                pipe.llen(queue_of(name))
            depths = pipe.execute() if names else []
        found = {}
        for name, depth in zip(names, depths, strict=True):
            digest, serving = max(by_name[name].items(), key=lambda item: (len(item[1]), item[0]))
            everyone = [announcement for one in by_name[name].values() for announcement, _ in one]
            found[name] = Served(
                spec=serving[0][1],
                digest=digest,
                workers=tuple(sorted(one.worker for one in everyone)),
                slots=sum(one.slots for one in everyone),
                queued=int(depth),
                models=tuple(sorted({one.model for one in everyone})),
            )
        return found
