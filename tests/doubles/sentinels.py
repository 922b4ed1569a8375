"""One primary, one replica and three sentinels of them, each its own process; the primary can be killed, and stays dead."""

from __future__ import annotations

import os
import secrets
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from shared.local.processes import ChildSpec, Processes
from shared.local.redis_server import find_server
from tests.waiting import wait_until

NAME = "the-primary"
DOWN_AFTER_MS = 500
"""Who answers no sentinel for this long is down."""


@dataclass(frozen=True)
class Watched:
    """Redis, and those who watch it."""

    processes: Processes
    ports: dict[str, int]
    """Of `redis-1`, `redis-2`, `sentinel-1` and so on."""
    password: str
    sentinel_password: str

    @property
    def url(self) -> str:
        first, *others = (f"127.0.0.1:{self.ports[name]}" for name in self.sentinels)
        options = f"master_name={NAME}&sentinel_password={self.sentinel_password}"
        return ";".join([f"sentinel://:{self.password}@{first}/0?{options}", *(f"sentinel://{other}" for other in others)])

    @property
    def sentinels(self) -> list[str]:
        return [name for name in self.ports if name.startswith("sentinel")]

    def kill(self, name: str) -> None:
        os.kill(self.processes.pids()[name], signal.SIGKILL)

    def wait_for_copy(self) -> None:
        """Until the replica has all that the primary has."""
        wait_until(self._is_copied, what="a whole copy")

    def wait_for_another_primary(self) -> None:
        """Until the replica is the primary, by the word of the last sentinel."""
        wait_until(lambda: _seen_by(self, self.sentinels[-1])["port"] == self.ports["redis-2"], what="another primary")

    def _is_copied(self) -> bool:
        try:
            with redis.Redis(port=self.ports["redis-1"], password=self.password) as primary:
                return bool(primary.wait(1, 1_000))
        except redis.ConnectionError:
            return False


@contextmanager
def watched_redis(folder: Path) -> Iterator[Watched]:
    """Ready when it begins: the replica copies, and each sentinel knows all others."""
    with Processes(folder) as processes:
        watched = Watched(processes, _free_ports("redis-1", "redis-2", "sentinel-1", "sentinel-2", "sentinel-3"), *_two_passwords())
        for name in watched.ports:
            if name == "sentinel-1":  # they look who copies when they start, and then every ten seconds
                watched.wait_for_copy()
            _start(watched, folder, name)
        wait_until(lambda: all(_knows_all(watched, name) for name in watched.sentinels), what="sentinels that know each other")
        yield watched


def _start(watched: Watched, folder: Path, name: str) -> None:
    data = folder / name
    data.mkdir()
    is_sentinel = name.startswith("sentinel")
    lines = _of_a_sentinel(watched) if is_sentinel else _of_a_redis(watched, is_replica=name != "redis-1")
    file = data / "redis.conf"
    file.write_text("\n".join([f"port {watched.ports[name]}", "bind 127.0.0.1", f"dir {data}", *lines, ""]))
    command = [str(find_server()), str(file), *(["--sentinel"] if is_sentinel else [])]
    watched.processes.start(ChildSpec(name, command, is_ready=lambda: True, restart=False, ends_last=True))


def _of_a_redis(watched: Watched, *, is_replica: bool) -> list[str]:
    passwords = [f"requirepass {watched.password}", f"masterauth {watched.password}"]
    follows = [f"replicaof 127.0.0.1 {watched.ports['redis-1']}"] if is_replica else []
    return ['save ""', "repl-diskless-sync yes", "repl-diskless-sync-delay 0", *passwords, *follows]


def _of_a_sentinel(watched: Watched) -> list[str]:
    return [
        f"requirepass {watched.sentinel_password}",
        f"sentinel sentinel-pass {watched.sentinel_password}",
        f"sentinel monitor {NAME} 127.0.0.1 {watched.ports['redis-1']} 2",
        f"sentinel auth-pass {NAME} {watched.password}",
        f"sentinel down-after-milliseconds {NAME} {DOWN_AFTER_MS}",
        f"sentinel failover-timeout {NAME} 2000",
    ]


def _knows_all(watched: Watched, sentinel: str) -> bool:
    try:
        primary = _seen_by(watched, sentinel)
    except redis.ConnectionError:
        return False
    return bool(primary["num-slaves"] == 1 and primary["num-other-sentinels"] == 2)


def _seen_by(watched: Watched, sentinel: str) -> dict[str, Any]:
    """What it says of the primary."""
    with redis.Redis(port=watched.ports[sentinel], password=watched.sentinel_password) as client:
        seen: dict[str, Any] = client.sentinel_master(NAME)
        return seen


def _two_passwords() -> tuple[str, str]:
    return f"canary-{secrets.token_hex(8)}", f"canary-{secrets.token_hex(8)}"


def _free_ports(*names: str) -> dict[str, int]:
    """All different, for all are held until all are found."""
    with ExitStack() as held:
        found = {}
        for name in names:
            probe = held.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            found[name] = int(probe.getsockname()[1])
        return found
