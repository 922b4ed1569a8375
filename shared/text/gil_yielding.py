"""Long work in one thread of a process whose others have little to do each, and that soon."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

AT_A_TIME = 8
"""Items between two yields. If an item is a handoff to prepare or send, this is some milliseconds
of work.
"""
PAUSE_S = 0.0002
"""Seconds that give another thread time to wake up. Otherwise Python lets that thread wait for
`process.SWITCH_EVERY_S` after each of its calls to Redis, and a small job makes dozens.
"""


def gently(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items, and release the interpreter lock now and then; never for a few items."""
    for count, item in enumerate(items, start=1):
        yield item
        if count % AT_A_TIME == 0:
            time.sleep(PAUSE_S)
