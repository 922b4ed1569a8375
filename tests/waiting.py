"""Wait for a condition, never for a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

Seen = TypeVar("Seen")


def wait_until(look: Callable[[], Seen], *, timeout_s: float = 60.0, what: str = "it") -> Seen:
    """Return the first true value of `look`. Fail with `what` if there is none in time."""
    until = time.monotonic() + timeout_s
    pause = threading.Event()
    while not (seen := look()):
        if time.monotonic() > until:
            raise AssertionError(f"{what} did not come within {timeout_s:.0f} s")
        pause.wait(0.02)
    return seen
