"""Health of Redis and depth of its queues, for operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import redis

from handoff_queue.shared.settings.redis_url import URL_VARIABLE
from handoff_queue.shared.store import keys
from handoff_queue.shared.store.redis.acl import ADMIN
from handoff_queue.shared.store.redis.connection import CLUSTER, Connection
from handoff_queue.shared.store.redis.queue_access import read_answers_or_refusals
from handoff_queue.shared.store.redis.script import get_user
from handoff_queue.shared.store.script_arguments import iterate_rows, parse_name
from handoff_queue.shared.types.errors import StoreError, StoreUnavailable, UnusableRedis


@dataclass(frozen=True, slots=True)
class RedisFacts:
    """Facts that Redis reports about itself."""

    version: tuple[int, ...]
    """For example (7, 0, 15); () if Redis does not report it."""
    is_primary: bool
    append_only: bool
    eviction: str
    """The `maxmemory-policy`, or `unknown`."""
    max_memory_bytes: int
    """0: no limit."""
    used_memory_bytes: int
    limits_clients: bool = True
    """Whether the answers that a client does not read have a limit; True if Redis does not say it.
    """


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """Depth of a queue to which handoffs were published."""

    queue: str
    messages: int
    waiting_handoffs: int
    """Handoffs that wait in the queue for a claim. If there are more messages than that, the
    rest belongs to jobs that have ended.
    """


class Health:
    """Reads the state of Redis, and changes nothing."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def read_facts(self) -> RedisFacts:
        """Return the facts from INFO. A setting that INFO does not have comes from CONFIG, if Redis
        allows it.

        Raises:
            StoreUnavailable: Redis cannot be reached, or refuses the client.
            UnusableRedis: Redis is a cluster.
        """
        with self._connection.translate_errors():
            info: dict[str, Any] = self._connection.redis.info()
        self._check_no_cluster(info)
        version_parts = str(info.get("redis_version", "")).split(".")
        version = [int(part) for part in version_parts if part.isdigit()]
        eviction = (
            info.get("maxmemory_policy") or self._read_setting("maxmemory-policy") or "unknown"
        )
        return RedisFacts(
            version=tuple(version),
            is_primary=info.get("role", "master") == "master",
            append_only=self._is_append_only(info),
            eviction=str(eviction),
            max_memory_bytes=int(info.get("maxmemory", 0)),
            used_memory_bytes=int(info.get("used_memory", 0)),
            limits_clients=self._has_limit_of_clients(),
        )

    def check_no_cluster(self) -> None:
        """Raise `UnusableRedis` if Redis is a cluster. Do nothing if Redis does not allow INFO."""
        with self._connection.translate_errors(), suppress(redis.exceptions.NoPermissionError):
            self._check_no_cluster(self._connection.redis.info("cluster"))

    def find_refusal(self) -> str | None:
        """Return why Redis refuses writes although it can be read (it is full, or a replica),
        or None.

        The check is a write that every such Redis refuses and that changes nothing: zero bytes
        to a key that no process reads.
        """
        try:
            with self._connection.translate_errors():
                self._connection.redis.setrange(keys.WRITE_CHECK, 0, "")
        except StoreUnavailable as error:
            return str(error)
        return None

    def find_lack_of_memory(self, mark: float) -> str | None:
        """Return the reason to refuse new jobs if Redis uses more memory than the mark, else
        None.

        Args:
            mark: part of maxmemory, from 0 to 1. Redis without a maxmemory always has room.
        """
        with self._connection.translate_errors():
            info: dict[str, Any] = self._connection.redis.info("memory")
        limit_bytes = int(info.get("maxmemory", 0))
        used_bytes = int(info.get("used_memory", 0))
        if not limit_bytes or used_bytes <= mark * limit_bytes:
            return None
        return (
            f"Redis is filled to {100 * used_bytes / limit_bytes:.0f} % of its maxmemory, and above"
            f" {100 * mark:.0f} % no new job is taken: raise maxmemory, or delete old jobs (handoff"
            " delete); running jobs continue"
        )

    def count_messages(self, queues: Sequence[str]) -> dict[str, int]:
        """Return the number of messages in each queue, in one round trip."""
        with self._connection.translate_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            for queue in queues:
                pipe.llen(queue)
            depths = list(map(int, pipe.execute()))
        return dict(zip(queues, depths, strict=True))

    def list_used_queues(self) -> list[str]:
        """Return the name of each queue to which a handoff was ever published, in order."""
        with self._connection.translate_errors():
            return sorted(map(parse_name, self._connection.redis.hkeys(keys.QUEUES)))

    def filter_readable_queues(self, queues: Iterable[str]) -> list[str]:
        """Return the queues whose length this user may read, in order. A worker can announce that
        it serves a queue with the name of any key.
        """
        names = sorted(queues)
        with self._connection.translate_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            for queue in names:
                pipe.llen(queue)
            answers = pipe.execute(raise_on_error=False)
        return [
            queue
            for queue, answer in zip(names, answers, strict=True)
            if not isinstance(answer, redis.ResponseError)
        ]

    def read_depths(self) -> list[QueueDepth]:
        """Return the depth of every queue to which a handoff was ever published, by name. Queues
        that this process may not use are left out.
        """
        queues = self.list_used_queues()
        with self._connection.translate_errors():
            pipe = self._connection.redis.pipeline(transaction=False)
            for queue in queues:
                pipe.llen(queue)
                pipe.zcard(keys.WAITING + queue)
            answers = read_answers_or_refusals(pipe)
        depths: list[QueueDepth] = []
        for queue, parts in zip(queues, iterate_rows(answers, 2), strict=True):
            if self._connection.queue_access.is_refused(queue, parts):
                continue
            messages, waiting_handoffs = parts
            depths.append(QueueDepth(queue, int(messages), int(waiting_handoffs)))
        return depths

    def _is_append_only(self, info: Mapping[str, Any]) -> bool:
        if "aof_enabled" in info:
            return bool(int(info["aof_enabled"]))
        return self._read_setting("appendonly") == "yes"

    def _has_limit_of_clients(self) -> bool:
        """Return whether Redis limits the answers that a client does not read. Return True for the
        user of a process: it may not read settings, and each try would be a refusal in the audit.
        """
        if get_user(self._connection.redis) not in (None, "default", ADMIN):
            return True
        limits = self._read_setting("client-output-buffer-limit")
        return limits is None or not limits.startswith("normal 0 ")

    def _read_setting(self, name: str) -> str | None:
        """Return a setting, or None if a hosted Redis or an ACL refuses CONFIG."""
        try:
            with self._connection.translate_errors():
                value = self._connection.redis.config_get(name).get(name)
        except StoreUnavailable as error:
            if "cannot be reached" in str(error):
                raise
            return None
        except StoreError:
            return None
        if value is None:
            return None
        return str(value)

    def _check_no_cluster(self, info: Mapping[str, Any]) -> None:
        if int(info.get("cluster_enabled", 0)):
            raise UnusableRedis(CLUSTER.replace(URL_VARIABLE, self._connection.url_name))
