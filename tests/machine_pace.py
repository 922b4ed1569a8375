"""Pace of this machine, for tests that limit processor time in seconds."""

from __future__ import annotations

import re
import time

REFERENCE_S = 0.012
"""Processor seconds of `_work` on the machine on which the limits of the tests were measured."""
TRIES = 3


def slowdown() -> float:
    """Return how many times slower this machine is now than the machine of the limits, at least 1.
    A test multiplies its limit by this factor.
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
