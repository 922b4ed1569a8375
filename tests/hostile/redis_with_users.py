"""A Redis with a user for each kind of process, and what attacks on it need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis
from pydantic import SecretStr

from handoff_queue.shared.broker.transport import list_library_scripts
from handoff_queue.shared.local.child_process_restarts import Processes
from handoff_queue.shared.local.redis_server import PrivateRedis
from handoff_queue.shared.local.redis_users import RedisUsers, create_users
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.fleet_load import FleetLoad
from handoff_queue.shared.store.redis.acl import RedisDatabase
from handoff_queue.shared.store.store import Store, open_store

WORKERS = {"worker-analyst": ["analyst"], "worker-writer": ["writer"]}
READ_FIELDS = (
    "asks",
    "claimed_at",
    "deferred",
    "group",
    "heartbeat",
    "lease",
    "lost_claims",
    "past_claims",
    "r_day",
    "r_in",
    "r_out",
    "r_turns",
    "r_usd",
    "turn_at",
    "turns",
    "usd",
)
"""Fields of a handoff that a sweep, the end of the handoff or a list of running handoffs reads."""


@dataclass(frozen=True)
class Server:
    """A Redis with a user for each kind of process."""

    address: str
    """URL of the user with all rights; with the prefix of the keys, if there is one."""
    users: RedisUsers

    def connected_as(self, user: str) -> redis.Redis:
        return redis.Redis.from_url(self.users.build_url(user, self.address.partition("?")[0]))

    def observed_fleet(self) -> FleetLoad:
        """Return the load of the fleet that an observer sees."""
        with self.store("observer") as store:
            return store.fleet_load.now()

    @contextmanager
    def store(self, user: str) -> Iterator[Store]:
        """Return a store that one user has opened."""
        url = self.users.build_url(user, self.address)
        store = open_store(url, Settings(redis_url=SecretStr(url)))
        yield store
        store.connection.close()


@contextmanager
def redis_with_users(folder: Path, prefix: str = "") -> Iterator[Server]:
    """Start a Redis whose scripts a supervisor has loaded.

    Args:
        folder: gets the files of Redis.
        prefix: the prefix of all keys without its colon; empty: none.
    """
    users = create_users(WORKERS, RedisDatabase(prefix=prefix and f"{prefix}:"))
    with Processes(folder) as processes:
        private = PrivateRedis(processes, folder, append_only=False, users=users.build_lines())
        address = private.start()
        server = Server(f"{address}?prefix={prefix}" if prefix else address, users)
        with server.store("supervisor") as store:
            store.connection.load_scripts(list_library_scripts())
        yield server


def calls_of(connection: redis.Redis, command: str) -> int:
    """Return how often Redis has run a command."""
    return int(connection.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"])
