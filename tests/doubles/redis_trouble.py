"""What may happen to Redis: it is killed and comes back, or comes back with what it knew before."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from shared.local.processes import Processes
from tests.waiting import wait_until


def kill_redis(processes: Processes) -> None:
    """It is back when this returns."""
    killed = processes.pids()["redis"]
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: processes.pids().get("redis", killed) != killed, what="another Redis")
    processes.wait_until_ready()


@contextmanager
def silent_redis(processes: Processes) -> Iterator[None]:
    """It takes connections and says nothing, as if the network to it had been lost."""
    silent = processes.pids()["redis"]
    os.kill(silent, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(silent, signal.SIGCONT)


def snapshot(redis: Any) -> Callable[[], None]:
    """Takes everything as it is now: keys, what is left of their time, and what is in them. Called, it brings that back in one moment, and
    cuts every connection, as at a restart.
    """
    names = sorted(redis.scan_iter(count=1_000))
    pipe = redis.pipeline(transaction=True)
    for name in names:
        pipe.pttl(name)
        pipe.dump(name)
    answers = pipe.execute()
    kept = [(name, max(0, ttl), held) for name, ttl, held in zip(names, answers[::2], answers[1::2], strict=True) if held]

    def go_back() -> None:
        pipe = redis.pipeline(transaction=True)
        pipe.flushall()
        for name, ttl, held in kept:
            pipe.restore(name, ttl, held)
        pipe.execute()
        redis.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    return go_back
