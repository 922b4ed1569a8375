"""Lenient reading of entries that are not the truth about a job: statistics, presence, history."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from handoff_queue.shared.types.errors import MalformedMessage

Entry = TypeVar("Entry")


def readable(stored: Iterable[bytes], read: Callable[[bytes], Entry], key: str) -> list[Entry]:
    """Return the entries of a Redis key that `read` can read. The others are skipped, and one log line counts them.

    `read` refuses an entry with MalformedMessage, ValueError, KeyError, TypeError or RecursionError.
    """
    entries, unreadable = [], 0
    for item in stored:
        try:
            entries.append(read(item))
        except (MalformedMessage, ValueError, KeyError, TypeError, RecursionError):
            unreadable += 1
    if unreadable:
        from handoff_queue.shared.observability.logs import (
            log_of,  # commands that list jobs load no logging
        )

        log_of(__name__).warning("unreadable entries skipped", key=key, entries=unreadable)
    return entries
