"""Pace of this machine, for tests that limit processor time in seconds."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

REFERENCE_S = 0.012
"""Processor seconds of `_work` on the machine on which the limits of the tests were measured."""
TRIES = 3


def measure(
    work: Callable[[], object], limit_s: float, clock: Callable[[], float] = time.process_time
) -> float:
    """Return the processor seconds of `work` on the machine of the limits.

    A time above the limit is measured again. Other programs also slow down the memory and the
    caches of a processor, which its pace does not show.

    Args:
        limit_s: The limit of the test.
        clock: Returns the processor seconds of the processes or threads that do the work.
    """
    shortest_s = float("inf")
    for _ in range(TRIES):
        began = clock()
        work()
        taken_s = clock() - began
        if taken_s >= limit_s:
            taken_s /= _compute_slowdown()
        shortest_s = min(shortest_s, taken_s)
        if shortest_s < limit_s:
            break
    return shortest_s


def _compute_slowdown() -> float:
    """Return how many times slower this machine is now than the machine of the limits, at least
    1.
    """
    shortest_s = float("inf")
    for _ in range(TRIES):
        shortest_s = min(shortest_s, _seconds_of_work())
        if shortest_s <= REFERENCE_S:
            return 1.0
    return shortest_s / REFERENCE_S


def _seconds_of_work() -> float:
    began = time.process_time()
    _work()
    return time.process_time() - began


def _work() -> None:
    """Use dictionaries, texts and patterns, as the tested code does."""
    counts: dict[str, int] = {}
    text = " ".join(f"word{number % 977}" for number in range(40_000))
    for word in re.findall(r"[a-z]+\d+", text):
        counts[word] = counts.get(word, 0) + 1
    sorted(counts, key=lambda word: (counts[word], word))
