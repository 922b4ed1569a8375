"""Wait for a condition, never for a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")
MAX_WAIT_S = 120.0
"""Seconds after which a test gives up a wait that is not a promise. With a load of 25 on two cores,
a command took more than 30.
"""


def wait_until(
    condition: Callable[[], Value], *, timeout_s: float = MAX_WAIT_S, expected: str = "it"
) -> Value:
    """Call `condition` every 20 ms, and return its first true value.

    Raises:
        AssertionError: no value was true within `timeout_s`. The message names `expected`.
    """
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{expected} did not come within {timeout_s:.0f} s")
        pause.wait(0.02)
    return value
