"""Faults of Redis: a kill with a restart, silence, and a restart with older data."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from handoff_queue.shared.local.child_process_restarts import Processes
from handoff_queue.shared.local.redis_server import find_server, reuse_access
from tests.waiting import wait_until

HIGHEST_PORT = 55_536
"""A cluster node also uses the port 10,000 above its own, so the own port has this limit."""


class OwnRedis:
    """A Redis server that a test starts and kills. Its data survives a restart.

    `options`: arguments of its command line.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self._access = next(
            access
            for access in iter(lambda: reuse_access(None), None)
            if access.port < HIGHEST_PORT
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
            wait_until(lambda: _answers(client), expected="a Redis of its own")

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
    pid = processes.get_pids()["redis"]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: processes.get_pids().get("redis", pid) != pid, expected="another Redis")
    processes.wait_until_ready()


@contextmanager
def silent_redis(processes: Processes) -> Iterator[None]:
    """Let Redis accept connections without answering, as after a network failure."""
    pid = processes.get_pids()["redis"]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


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
    values = [
        (name, max(0, ttl), dumped)
        for name, ttl, dumped in zip(names, answers[::2], answers[1::2], strict=True)
        if dumped
    ]

    def restore() -> None:
        pipe = redis.pipeline(transaction=True)
        pipe.flushall()
        for name, ttl, dumped in values:
            pipe.restore(name, ttl, dumped)
        pipe.execute()
        redis.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    return restore
