"""Faults of Redis: a kill with a restart, and a restart with older data."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from handoff_queue.shared.local.processes import Processes
from handoff_queue.shared.local.redis_access import access_from
from handoff_queue.shared.local.redis_server import find_server
from tests.waiting import wait_until

HIGHEST_PORT = 55_536
"""A node of a cluster takes a second port, 10,000 above its own."""


class OwnRedis:
    """A Redis server that a test starts and kills. Its data survives a restart.

    `options`: arguments of its command line.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self._access = next(
            one for one in iter(lambda: access_from(None), None) if one.port < HIGHEST_PORT
        )
        self._command = [
            *(
                str(find_server()),
                "--port",
                str(self._access.port),
                "--requirepass",
                self._access.password,
                "--dir",
                str(folder),
            ),
            *("--appendonly", "yes", "--appendfsync", "always", "--save", "", *options),
        ]
        self._server: subprocess.Popen[bytes] | None = None
        self.url = self._access.url

    def start(self) -> None:
        """Start the server, and return when it answers."""
        self._server = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        with redis.Redis.from_url(self.url) as client:
            wait_until(lambda: _answers(client), what="a Redis of its own")

    def kill(self) -> None:
        """Kill the server, and return when it is gone."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()


def _answers(client: Any) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False


def kill_redis(processes: Processes) -> None:
    """Kill Redis, and return when it has restarted."""
    killed = processes.pids()["redis"]
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: processes.pids().get("redis", killed) != killed, what="another Redis")
    processes.wait_until_ready()


@contextmanager
def silent_redis(processes: Processes) -> Iterator[None]:
    """Let Redis accept connections without answering, as after a network failure."""
    silent = processes.pids()["redis"]
    os.kill(silent, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(silent, signal.SIGCONT)


def snapshot(redis: Any) -> Callable[[], None]:
    """Copy all keys with their values and remaining lifetimes, and return a function that restores
    the copy.

    The function replaces all data in one step and cuts every connection, as a restart does.
    """
    names = sorted(redis.scan_iter(count=1_000))
    pipe = redis.pipeline(transaction=True)
    for name in names:
        pipe.pttl(name)
        pipe.dump(name)
    answers = pipe.execute()
    kept = [
        (name, max(0, ttl), held)
        for name, ttl, held in zip(names, answers[::2], answers[1::2], strict=True)
        if held
    ]

    def go_back() -> None:
        pipe = redis.pipeline(transaction=True)
        pipe.flushall()
        for name, ttl, held in kept:
            pipe.restore(name, ttl, held)
        pipe.execute()
        redis.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    return go_back
