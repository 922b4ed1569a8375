"""Long work in one thread of a process whose others have little to do each, and that soon."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

AT_A_TIME = 8
"""Some milliseconds of work, where an item is a handoff that is prepared or sent."""
PAUSE_S = 0.0002
"""Long enough for another thread to wake up. Python would let it wait for
`process.SWITCH_EVERY_S`, anew after each of its own pauses for Redis, of which even a small
job has dozens.
"""


def gently(items: Iterable[Item]) -> Iterator[Item]:
    """The same items, with the interpreter lock given away now and then; not at all for a few
    of them.
    """
    for count, item in enumerate(items, start=1):
        yield item
        if count % AT_A_TIME == 0:
            time.sleep(PAUSE_S)
