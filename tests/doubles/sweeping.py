"""A sweeper that runs during a part of a test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from handoff_queue.supervisor.engine.sweeper import Sweeper
from tests.waiting import wait_until


@contextmanager
def sweeping(sweeper: Sweeper) -> Iterator[None]:
    """Run the thread of a sweeper. It has ended before the test closes its store."""
    before = set(threading.enumerate())
    sweeper.start()
    threads = set(threading.enumerate()) - before
    try:
        yield
    finally:
        sweeper.stop()
        wait_until(
            lambda: not any(thread.name == "sweeper" and thread.is_alive() for thread in threads),
            expected="the end of the sweeper",
        )
