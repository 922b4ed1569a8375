"""Pauses in the long work of one thread, so that the other threads of the process can run."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

AT_A_TIME = 8
"""Items between two pauses. To prepare or send eight handoffs takes some milliseconds."""
PAUSE_S = 0.0002
"""Seconds of a pause, in which another thread can wake up. Without pauses, that thread would
wait `process_resources.SWITCH_EVERY_S` after each of its calls to Redis, and a small job makes
dozens of calls.
"""


def with_pauses(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items, and release the interpreter lock after every `AT_A_TIME` items."""
    for count, item in enumerate(items, start=1):
        yield item
        if count % AT_A_TIME == 0:
            time.sleep(PAUSE_S)
