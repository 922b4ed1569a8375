"""Leaks: keys in Redis that should be gone when every job has ended. A run or a test with a leak
fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

KEPT_FOR_EVER = (
    r"handoff:due",  # due jobs: the end of a job removes its entry
    r"handoff:jobs",  # one entry a job, removed with retention
    r"handoff:queues",  # one field a queue
    # one entry for each unclaimed handoff, and for each wake-up in a queue
    r"handoff:waiting:.+",
    r"handoff:paused",  # one field a paused role
    r"handoff:held:.+",  # one entry a handoff of a paused role; gone when the role is unpaused
    # one entry for each message that is being published, or was taken without a claim or evaluation
    r"handoff:out:.+",
    r"handoff:fair:.+",  # order of the messages in a queue
    r"handoff:caps",  # five fields
    r"handoff:silence",  # four fields
)
OURS = ("handoff:", "celery-")
"""The rest is kombu's: one binding table a queue, the messages themselves, and an entry for
each that is not acknowledged yet.
"""


def keys_for_ever(client: Any) -> list[str]:
    """Return our keys and Celery's keys without a TTL, except for keys that must not have one."""
    names = sorted(
        name.decode() for name in client.scan_iter(count=1_000) if name.decode().startswith(OURS)
    )
    suspects = [
        name for name in names if not any(re.fullmatch(pattern, name) for pattern in KEPT_FOR_EVER)
    ]
    pipe = client.pipeline(transaction=False)
    for name in suspects:
        pipe.ttl(name)
    return [name for name, seconds in zip(suspects, pipe.execute(), strict=True) if seconds == -1]


RESERVED = ("reserved_turns", "reserved_tokens", "reserved_usd")
"""Fields of a job's and a day's budget that hold reservations for calls."""
RESERVATION = ("r_turns", "r_in", "r_out", "r_usd", "r_day")
"""A handoff's own."""
UNACKED, UNACKED_INDEX = "unacked", "unacked_index"
"""kombu's keys: unacknowledged messages, and their redelivery times."""


def left_behind(client: Any, queues: Iterable[str], *, was_struck: bool) -> list[str]:
    """Return leaks after all jobs have ended: wake-ups, waits, turns, reservations, messages, keys
    without a TTL.

    Args:
        was_struck: True if processes were killed. Celery redelivers their messages later, if
            its index has them.
    """
    names = [name.decode() for name in client.scan_iter(match="handoff:*", count=1_000)]
    leaks = [f"{name}: no TTL" for name in keys_for_ever(client)]
    leaks += [f"{name}: turns of a handoff" for name in names if re.search(r"\}:t:", name)]
    for name in names:
        if name == "handoff:due" or name.startswith(("handoff:waiting:", "handoff:out:")):
            for member in client.zrange(name, 0, -1):
                leaks.append(f"{name}: {member.decode()}")
        elif name.startswith("handoff:fair:"):
            leaks.append(f"{name}: of messages that are gone")
    return sorted(
        [*leaks, *_reserved(client, names), *_messages(client, queues, was_struck=was_struck)]
    )


def _reserved(client: Any, names: Iterable[str]) -> list[str]:
    """Return the reservations at every level: handoffs, jobs, days of tenants and of the
    installation.
    """
    leaks = []
    for name in names:
        if re.fullmatch(r"handoff:(\{[^}]+\}|day:.+)", name):
            reserved = [int(value or 0) for value in client.hmget(name, *RESERVED)]
            if any(reserved):
                leaks += [f"{name}: reserved {reserved}"]
        elif re.fullmatch(r"handoff:\{[^}]+\}:h:.+", name):
            own = [
                value.decode() for value in client.hmget(name, *RESERVATION) if value is not None
            ]
            if own:
                leaks += [f"{name}: has set aside {own}"]
    return leaks


def _messages(client: Any, queues: Iterable[str], *, was_struck: bool) -> list[str]:
    leaks: list[str] = []
    for queue in queues:
        if count := client.llen(queue):
            leaks.append(f"{queue}: {count} messages")
    out, indexed = set(client.hkeys(UNACKED)), set(client.zrange(UNACKED_INDEX, 0, -1))
    if out and not was_struck:
        leaks.append(f"{UNACKED}: {len(out)} messages")
    if out != indexed:
        leaks.append(
            f"{UNACKED}: {len(out - indexed)} messages that never come back, {len(indexed - out)} that come back as nothing"
        )
    return leaks
