"""Measure work independently of the machine: count the calls of Python functions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def calls_in(work: Callable[[], Any]) -> int:
    """Return the number of calls of functions, comprehensions and generators during `work`."""
    count = 0

    def count_call(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    previous = sys.getprofile()
    sys.setprofile(count_call)
    try:
        work()
    finally:
        sys.setprofile(previous)
    return count
