"""Presence: the specialists that live workers serve, and whether a supervisor runs.

Each process announces itself again and again. The announcement of a dead process expires.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from handoff_queue.shared.store import keys
from handoff_queue.shared.store.pauses import Pause, parse_pause, parse_pauses
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.store.redis.queue_access import read_answers_or_refusals
from handoff_queue.shared.store.script_arguments import iterate_rows, parse_name, read_entries
from handoff_queue.shared.trust.announcement_signatures import (
    SignedAnnouncement,
    get_announcement_text,
    read_announcement,
    sign_announcement,
)
from handoff_queue.shared.trust.signatures import NO_TRUST, Trust
from handoff_queue.shared.types.errors import MalformedMessage, UntrustedMessage
from handoff_queue.shared.types.ids import HandoffId, JobId
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST, SUPERVISOR_QUEUE, get_queue
from handoff_queue.shared.types.presence import Announcement, Node
from handoff_queue.shared.types.specialist import SpecialistSpec

ANNOUNCED_FOR_S = 15
"""Seconds that an announcement is valid; a process repeats it every third of that time. This
equals the default lease, so the announcement of a dead worker expires at about the same time
as its claims.
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
"""Seconds for which a process uses the served specialists that it has read."""


CHECKED_WITHIN_S = 30.0
"""Seconds by which the check of a waiting job may be late before its announcement expires."""
MAX_NAMED = 5
"""Most specialists that the announcement of a waiting job names."""
MAX_WISHES = 100
"""Most groups of waiting jobs that are counted."""
MAX_READ = 10_000
"""Most members of `keys.SERVING` that one call reads, such as 1,000 processes with ten specialists
each. A worker may write any number of members.
"""
MAX_ANNOUNCEMENT_MS = 60_000
"""Longest time in ms for which an announcement is read, from now on: four times `ANNOUNCED_FOR_S`.
A member that expires later is not ours.
"""
MAX_ANNOUNCED_BYTES = 8 * 2**20
"""Size of the largest announcement that is read. An announcement of 100 specialists with the
longest instructions has 6 MB.
"""
SHORT_BYTES = 2**16
"""Size up to which an announcement is read in the first round trip. Most have about 5 kB for each
specialist.
"""
READ_AT_ONCE = 16 * 2**20
MAX_READ_BYTES = 64 * 2**20
"""Most bytes of announcements that one call reads: 1,000 processes with ten specialists each have
50 MB. A worker may write any number of announcements, and their JSON takes seconds to parse.
"""


@dataclass(frozen=True, slots=True)
class LiveProcess:
    """A worker or a supervisor that announced itself within `ANNOUNCED_FOR_S`."""

    kind: Literal["worker", "supervisor"]
    name: str
    node: Node | None
    """None if this version cannot read the announcement."""


@dataclass(frozen=True, slots=True)
class RefusedAnnouncement:
    """An announcement of a live worker that does not count."""

    worker: str
    reason: str
    text: str
    """The announcement as the worker wrote it."""


@dataclass(frozen=True, slots=True)
class ServedSpecialist:
    """A specialist that at least one worker serves."""

    spec: SpecialistSpec
    digest: str
    workers: tuple[str, ...]
    slots: int
    queued: int
    """Messages in its queue, and its handoffs that are paused."""
    models: tuple[str, ...] = ()
    paused: Pause | None = None
    effects: frozenset[str] = frozenset()
    """The tools of the specialist that are not safe to repeat, or its Celery task if that task
    is not safe to repeat.
    """
    is_only_announced: bool = False
    """True if this supervisor has no file with these contents: a worker that was taken over may
    have written them.
    """


@dataclass(slots=True)
class _ServedVersion:
    """A version of a specialist, with the announcements of the workers that serve it."""

    spec: SpecialistSpec
    announcements: list[SignedAnnouncement] = field(default_factory=list)

    @property
    def rank(self) -> tuple[int, int, str]:
        """Return the order of the versions. Each key has one vote; among equals, the number of
        workers and then the digest decide.
        """
        votes = {signed.vote for signed in self.announcements}
        return len(votes), len(self.announcements), self.spec.content_digest


def find_acting(
    served: Mapping[str, ServedSpecialist], planned: Collection[str] = ()
) -> frozenset[str]:
    """Return the specialists that have a tool or a task with effects.

    Args:
        planned: specialists that a planner was offered. If no worker announces one of these now, it
            counts as acting, because its tools are not known.
    """
    names = {*planned} - {*served, CHILD_JOB_SPECIALIST}
    for name, specialist in served.items():
        if specialist.effects:
            names.add(name)
    return frozenset(names)


@dataclass(frozen=True, slots=True)
class Presence:
    """The served queues at one moment, and the handoffs that wait for a missing or paused agent."""

    queues: frozenset[str]
    """Queues that a live process serves: names of specialists, and `supervisor`."""
    unclaimed: Mapping[JobId, Mapping[HandoffId, str]] = field(default_factory=dict)
    """Handoffs of the requested jobs that wait for an unserved specialist or a paused agent,
    with the name of that agent.
    """
    paused: Mapping[str, Pause] = field(default_factory=dict)
    """Pauses by agent."""


class PresenceStore:
    """The announcements."""

    def __init__(self, connection: Connection, trust: Trust = NO_TRUST) -> None:
        """Read and write the announcements.

        Args:
            trust: the keys of this process. With a keyring, only signed announcements count.
        """
        self._connection = connection
        self._trust = trust
        self._accepted: Mapping[str, str] | None = None
        self._own_files: Mapping[str, str] | None = None
        self._read_at = -GOOD_FOR_S
        self._served: dict[str, ServedSpecialist] = {}

    def accept_only(self, digests: Mapping[str, str]) -> None:
        """Accept only announcements of these specialists.

        Args:
            digests: the digest of each specialist, by its name.
        """
        self._accepted = digests

    def compare_with(self, digests: Mapping[str, str]) -> None:
        """Compare announced specialists with the files of this supervisor: see
        `ServedSpecialist.is_only_announced`.

        Args:
            digests: the digest of each specialist, by its name.
        """
        self._own_files = digests

    def announce(self, announcement: Announcement) -> None:
        """Announce this worker for another `ANNOUNCED_FOR_S`."""
        with self._connection.translate_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            signed_text = sign_announcement(self._trust, announcement, self._connection.now())
            specialist = _find_first_specialist(announcement)
            worker = announcement.worker
            pipe.set(keys.worker(specialist, worker), signed_text, ex=ANNOUNCED_FOR_S)
            self._add_members(pipe, keys.announced_workers(specialist), [worker])
            self._add_members(pipe, keys.SERVING, _build_members(announcement))
            pipe.execute()

    def withdraw(self, announcement: Announcement) -> None:
        """Withdraw the announcement of a worker that takes no more messages."""
        with self._connection.translate_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            specialist = _find_first_specialist(announcement)
            pipe.delete(keys.worker(specialist, announcement.worker))
            pipe.zrem(keys.announced_workers(specialist), announcement.worker)
            pipe.zrem(keys.SERVING, "", *_build_members(announcement))
            pipe.execute()

    def announce_supervisor(self, name: str, node: Node | None = None) -> int:
        """Announce this supervisor for another `ANNOUNCED_FOR_S`.

        Return the time at which the caps of a day were set, in Unix ms by Redis's clock.
        `DailyBudgets.set_caps` stored it. Return 0 if Redis has no caps.
        """
        with self._connection.translate_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            if node is not None:
                pipe.set(keys.supervisor(name), node.to_json(), ex=ANNOUNCED_FOR_S)
            self._add_members(pipe, keys.SERVING, [f"{SUPERVISOR_QUEUE}/{name}"])
            pipe.hget(keys.CAPS, "since")
            since = pipe.execute()[-1] or b"0"
        if since.isdigit():
            return int(since)
        return 0  # the time is unreadable: this supervisor sets its caps again

    def withdraw_supervisor(self, name: str) -> None:
        """Withdraw the announcement of a supervisor that takes no more messages."""
        with self._connection.translate_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            pipe.zrem(keys.SERVING, f"{SUPERVISOR_QUEUE}/{name}")
            pipe.delete(keys.supervisor(name))
            pipe.execute()

    def _add_members(self, pipe: Any, key: str, members: Sequence[str]) -> None:
        """Add commands to the pipeline that announce members of a sorted set, and that remove
        expired members and members that expire too late.
        """
        now = self._connection.now()
        pipe.zremrangebyscore(key, "-inf", now * 1000)
        pipe.zremrangebyscore(key, f"({now * 1000 + MAX_ANNOUNCEMENT_MS}", "+inf")
        if members:
            pipe.zadd(key, dict.fromkeys(members, (now + ANNOUNCED_FOR_S) * 1000))
            pipe.expire(key, ANNOUNCED_FOR_S)

    def announce_unplanned_job(
        self, job_id: JobId, specialists: Collection[str], check_at: float
    ) -> None:
        """Announce that a job cannot begin, because no worker serves a specialist that it may use.

        The announcement expires by itself, so nothing takes it back. A fault of the announcement
        does not stop the job.

        Args:
            specialists: the specialists that the job may use; empty: any.
            check_at: time of the next check, in Unix seconds, which repeats the announcement.
        """
        names = " ".join(sorted(specialists)[:MAX_NAMED])
        jobs_key = f"{keys.UNPLANNED}:{names}"
        now_ms = self._connection.now() * 1000
        until_ms = (check_at + CHECKED_WITHIN_S) * 1000
        with self._connection.translate_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            for key, member in ((keys.UNPLANNED, names), (jobs_key, job_id)):
                pipe.zremrangebyscore(key, "-inf", now_ms)
                pipe.zadd(key, {member: until_ms})
                pipe.pexpireat(key, int(until_ms))
            pipe.execute(raise_on_error=False)

    def count_unplanned_jobs(self) -> dict[tuple[str, ...], int]:
        """Return the number of announced jobs that wait for a worker, by the specialists that
        they may use; `()`: any. Two round trips at any number of jobs.
        """
        now_ms = self._connection.now() * 1000
        with self._connection.translate_errors():
            redis = self._connection.redis
            entries = redis.zrangebyscore(keys.UNPLANNED, now_ms, "+inf", start=0, num=MAX_WISHES)
            wishes = list(map(parse_name, entries))
            pipe = redis.pipeline(transaction=False)
            for names in wishes:
                pipe.zcount(f"{keys.UNPLANNED}:{names}", now_ms, "+inf")
            counts = pipe.execute()
        jobs: dict[tuple[str, ...], int] = {}
        for names, count in zip(wishes, counts, strict=True):
            if count:
                jobs[tuple(names.split())] = int(count)
        return jobs

    def read_presence(
        self,
        job_ids: Sequence[JobId] = (),
        handoffs: Sequence[tuple[JobId, HandoffId]] = (),
        limit: int | None = None,
    ) -> Presence:
        """Return the served queues, and the waiting handoffs, in at most two round trips. Queues
        that this process may not use are left out.

        A handoff waits if no live process serves its queue, or if its agent is paused. To look
        up `handoffs` costs almost nothing. For `job_ids`, the script reads all waiting
        handoffs of unserved queues and paused agents, or the first `limit` of each.

        Args:
            job_ids: jobs whose waiting handoffs are wanted.
            handoffs: single handoffs that may wait.
        """
        last_position = limit - 1 if limit else -1
        arguments: list[int | str] = [last_position, MAX_ANNOUNCEMENT_MS, MAX_READ, *job_ids]
        for job_id, handoff_id in handoffs:
            arguments.append(f"{job_id}/{handoff_id}")
        served, waiting, pause_rows = self._connection.run_script(
            "presence", [keys.SERVING, keys.QUEUES, keys.PAUSED], arguments
        )
        unclaimed_handoffs: dict[JobId, dict[HandoffId, str]] = {}
        for member in waiting:
            agent, job, handoff = parse_name(member).split("/", 2)
            unclaimed_handoffs.setdefault(JobId(job), {})[HandoffId(handoff)] = agent
        pauses = parse_pauses(dict(iterate_rows(pause_rows, 2)))
        queues = frozenset(map(parse_name, served))
        refused = self._connection.queue_access.find_refused(queues)
        return Presence(queues - refused, unclaimed_handoffs, pauses)

    def read_announcements(self) -> list[Announcement]:
        """Return the announcements of the live workers. Announcements that this version cannot
        read, or whose signatures do not hold, are skipped.
        """
        return [signed.announcement for signed in self._read_signed_announcements()]

    def needs_keys(self) -> bool:
        """Return whether this process has no keys, and a live worker signs its messages."""
        if self._trust.is_on:
            return False
        texts = self._read_texts_of_workers()
        return any(get_announcement_text(text) is not text for _, text in texts)

    def read_refused_announcements(self) -> list[RefusedAnnouncement]:
        """Return the announcements of live workers that do not count."""
        refused_announcements: list[RefusedAnnouncement] = []
        if not self._trust.is_on and self._accepted is None:
            return refused_announcements
        now = self._connection.now()
        for worker, text in self._read_texts_of_workers():
            try:
                self._read_accepted(text, now)
            except UntrustedMessage as error:
                refused_announcements.append(
                    RefusedAnnouncement(worker, str(error), text.decode(errors="replace"))
                )
            except MalformedMessage:
                continue  # a worker of another version has signed it
        return refused_announcements

    def _read_texts_of_workers(self) -> list[tuple[str, bytes]]:
        """Return the name and the announcement of each live worker. An announcement that has just
        expired is left out.
        """
        _, workers = self._list_live_names()
        announced_at = [keys.worker(specialist, name) for specialist, name in workers]
        announced_values = self._read_announced_values(announced_at)
        texts: list[tuple[str, bytes]] = []
        for (_, name), text in zip(workers, announced_values, strict=True):
            if text is not None:
                texts.append((name, text))
        return texts

    def _read_signed_announcements(self) -> list[SignedAnnouncement]:
        now = self._connection.now()

        def read(text: bytes) -> SignedAnnouncement:
            try:
                return self._read_accepted(text, now)
            except UntrustedMessage as error:
                raise MalformedMessage(str(error)) from error

        texts = [text for _, text in self._read_texts_of_workers()]
        return read_entries(texts, read, keys.worker("*", "*"))

    def _read_accepted(self, text: bytes, now: float) -> SignedAnnouncement:
        """Return an announcement that counts. Raises as `read_announcement`."""
        signed = read_announcement(self._trust, text, now)
        if self._accepted is not None:
            for spec in signed.announcement.specialists:
                if self._accepted.get(spec.name) != spec.content_digest:
                    raise UntrustedMessage(
                        f"it has {spec.name} with other contents than the supervisor's file"
                    )
        return signed

    def list_processes(self) -> list[LiveProcess]:
        """Return the live workers and supervisors, by kind and name."""
        supervisors, workers = self._list_live_names()
        announced_at = [keys.supervisor(name) for name in supervisors]
        announced_at += [keys.worker(specialist, name) for specialist, name in workers]
        texts = self._read_announced_values(announced_at)
        of_supervisors, of_workers = texts[: len(supervisors)], texts[len(supervisors) :]
        processes: list[LiveProcess] = []
        for name, text in zip(supervisors, of_supervisors, strict=True):
            processes.append(LiveProcess("supervisor", name, parse_node(text)))
        for (_, name), text in sorted(zip(workers, of_workers, strict=True), key=_get_worker):
            processes.append(LiveProcess("worker", name, parse_node(text)))
        return processes

    def list_served_queues(self) -> frozenset[str]:
        """Return the names of the queues that live processes serve."""
        return frozenset(member.partition("/")[0] for member in self._list_live_members())

    def _list_live_names(self) -> tuple[list[str], list[tuple[str, str]]]:
        """Return the names of the live supervisors in order, and the first specialist and the name
        of each live worker.

        Every worker may remove members of `keys.SERVING`. So the specialists come from the keyring
        if it names all. A worker that was taken over may announce any number of workers under its
        own specialist. So the first worker of each specialist comes first, then the second of each.
        """
        supervisors: set[str] = set()
        specialists: set[str] = set()
        for member in self._list_live_members():
            queue, _, name = member.partition("/")
            if queue == SUPERVISOR_QUEUE:
                supervisors.add(name)
            else:
                specialists.add(queue)
        names = self._trust.list_specialists()
        if names is None:
            names = sorted(specialists)
        workers: list[tuple[int, str, str]] = []
        for specialist, members in zip(names, self._list_members_of(names), strict=True):
            for place, worker in enumerate(members):
                workers.append((place, specialist, worker))
        return sorted(supervisors), [(name, worker) for _, name, worker in sorted(workers)]

    def _list_live_members(self) -> list[str]:
        """Return the members of `keys.SERVING` that have not expired."""
        return self._list_members([keys.SERVING])[0]

    def _list_members_of(self, specialists: Sequence[str]) -> list[list[str]]:
        """Return the live workers that are announced under each of these specialists, in order."""
        if not specialists:
            return []
        return [
            sorted(members)
            for members in self._list_members(map(keys.announced_workers, specialists))
        ]

    def _list_members(self, sets: Iterable[str]) -> list[list[str]]:
        """Return the members of sorted sets that have not expired."""
        set_keys = list(sets)
        now_ms = int(self._connection.now() * 1000)
        limits = [now_ms, now_ms + MAX_ANNOUNCEMENT_MS, MAX_READ]
        lists = self._connection.run_script("list_members", set_keys, limits * len(set_keys))
        return [list(map(parse_name, members)) for members in lists]

    def _read_announced_values(self, announced_at: Sequence[str]) -> list[bytes | None]:
        """Return the value at each key; None if it is missing or larger than
        `MAX_ANNOUNCED_BYTES`, or if the values before it have `MAX_READ_BYTES` together.
        """
        values: dict[str, bytes] = {}
        longer: list[str] = []
        left = MAX_READ_BYTES
        for key, text in self._read_beginnings(announced_at, SHORT_BYTES, left):
            if len(text) > SHORT_BYTES:
                longer.append(key)
            else:
                values[key] = text
                left -= len(text)
        for key, text in self._read_beginnings(longer, MAX_ANNOUNCED_BYTES, left):
            if len(text) <= MAX_ANNOUNCED_BYTES:
                values[key] = text
        return [values.get(key) or None for key in announced_at]

    def _read_beginnings(
        self, announced_at: Sequence[str], size: int, left: int
    ) -> Iterator[tuple[str, bytes]]:
        """Yield the keys with the first `size` + 1 bytes of their values, until `left` bytes are
        read. One round trip reads at most about 16 MB.
        """
        for part in iterate_rows(announced_at, max(1, READ_AT_ONCE // size)):
            if left <= 0:
                return
            with self._connection.translate_errors():
                pipe = self._connection.redis.pipeline(transaction=False)
                for key in part:
                    pipe.getrange(key, 0, size)
                beginnings = pipe.execute()
            left -= sum(map(len, beginnings))
            yield from zip(part, beginnings, strict=True)

    def load_served_specialists(self) -> dict[str, ServedSpecialist]:
        """Return each served specialist by name, as read in the last `GOOD_FOR_S`. A specialist
        whose queue this process may not use is left out. If workers
        serve different versions, the version that most workers serve is returned.
        """
        if time.monotonic() - self._read_at >= GOOD_FOR_S:
            self._served = self._read()
            self._read_at = time.monotonic()
        return self._served

    def _read(self) -> dict[str, ServedSpecialist]:
        """Read the served specialists from Redis, in a few round trips."""
        versions_by_name: dict[str, dict[str, _ServedVersion]] = {}
        for signed in self._read_signed_announcements():
            for spec in signed.announcement.specialists:
                versions = versions_by_name.setdefault(spec.name, {})
                version = versions.setdefault(spec.content_digest, _ServedVersion(spec))
                version.announcements.append(signed)
        names = sorted(versions_by_name)
        with self._connection.translate_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            for name in names:
                pipe.llen(get_queue(name))
                pipe.zcard(keys.PAUSED_HANDOFFS + name)
                pipe.hget(keys.PAUSED, name)
            answers = read_answers_or_refusals(pipe)
        specialists: dict[str, ServedSpecialist] = {}
        for name, parts in zip(names, iterate_rows(answers, 3), strict=True):
            if self._connection.queue_access.is_refused(name, parts):
                continue
            depth, paused_handoffs, stored_pause = parts
            pause = parse_pause(stored_pause) if stored_pause else None
            all_versions = list(versions_by_name[name].values())
            merged = _merge_versions(all_versions, int(depth) + int(paused_handoffs), pause)
            if self._own_files is not None and self._own_files.get(name) != merged.digest:
                merged = replace(merged, is_only_announced=True)
            specialists[name] = merged
        return specialists


def _merge_versions(
    versions: Sequence[_ServedVersion], queued: int, pause: Pause | None
) -> ServedSpecialist:
    """Return a specialist by its versions. The workers of all versions count."""
    chosen_version = max(versions, key=lambda version: version.rank)
    workers: list[str] = []
    models: set[str] = set()
    slots = 0
    announcements: list[Announcement] = []
    for version in versions:
        for signed in version.announcements:
            announcement = signed.announcement
            announcements.append(announcement)
            workers.append(announcement.worker)
            models.add(announcement.model)
            slots += max(0, announcement.slots - announcement.lost_slots)
    return ServedSpecialist(
        spec=chosen_version.spec,
        digest=chosen_version.spec.content_digest,
        workers=tuple(sorted(workers)),
        slots=slots,
        queued=queued,
        models=tuple(sorted(models)),
        paused=pause,
        effects=_find_effects(chosen_version.spec, announcements),
    )


def _find_effects(spec: SpecialistSpec, announcements: Iterable[Announcement]) -> frozenset[str]:
    """Return the task of a specialist if the task has an effect, else its tools that any
    worker announces as not safe to repeat.
    """
    if spec.task_with_effect is not None:
        return frozenset((spec.task_with_effect,))
    tools: set[str] = set()
    for announcement in announcements:
        tools.update(announcement.effects)
    return frozenset(tools.intersection(spec.tools))


def parse_node(text: bytes | None) -> Node | None:
    """Return the node in an announcement; None if it is missing or cannot be read."""
    try:
        return Node.from_json(get_announcement_text(text or b""))
    except MalformedMessage:
        return None


def _find_first_specialist(announcement: Announcement) -> str:
    """Return the first specialist of a worker. If the worker serves none, this is a specialist
    that it cannot serve on its machine.
    """
    names = [*(spec.name for spec in announcement.specialists), *announcement.not_served, ""]
    return names[0]


def _get_worker(entry: tuple[tuple[str, str], object]) -> str:
    (_, name), _ = entry
    return name


def _build_members(announcement: Announcement) -> list[str]:
    """Return the members of `keys.SERVING` for the specialists of a worker."""
    members: list[str] = []
    for spec in announcement.specialists:
        members.append(f"{spec.name}/{announcement.worker}")
    return members
