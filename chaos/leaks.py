"""What is left in Redis when every job has ended: a run, or a test, that leaves something for
ever fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

KEPT_FOR_EVER = (
    r"handoff:due",  # what must be woken: emptied by ending jobs
    r"handoff:jobs",  # one entry a job, removed with retention
    r"handoff:queues",  # one field a queue
    # one entry a handoff that nobody has claimed yet, or a wake-up that nobody has taken yet
    r"handoff:waiting:.+",
    r"handoff:paused",  # one field a paused role
    r"handoff:held:.+",  # one entry a handoff of a paused role; gone when the role is resumed
    # one entry for what is being published, or was taken and not claimed or looked at yet
    r"handoff:out:.+",
    r"handoff:fair:.+",  # what waits in a queue, and in which order
    r"handoff:caps",  # five fields
    r"handoff:silence",  # four fields
)
OURS = ("handoff:", "celery-")
"""The rest is kombu's: one binding table a queue, the messages themselves, and an entry for
each that is not acknowledged yet.
"""


def keys_for_ever(client: Any) -> list[str]:
    """The keys of ours and of Celery's without a TTL, but for those that must not have one."""
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
"""What a job's books, and a day's, have set aside for calls."""
RESERVATION = ("r_turns", "r_in", "r_out", "r_usd", "r_day")
"""A handoff's own."""
UNACKED, UNACKED_INDEX = "unacked", "unacked_index"
"""kombu's: what was delivered and not acknowledged, and when it is to be delivered again."""


def left_behind(client: Any, queues: Iterable[str], *, was_struck: bool) -> list[str]:
    """What should be gone when every job has ended: wake-ups, waits, turns, reservations,
    messages, keys without a TTL.

    `was_struck`: processes were killed. What they had in their hands Celery takes back in its
    own time, if it is in its index.
    """
    names = [name.decode() for name in client.scan_iter(match="handoff:*", count=1_000)]
    found = [f"{name}: no TTL" for name in keys_for_ever(client)]
    found += [f"{name}: turns of a handoff" for name in names if re.search(r"\}:t:", name)]
    for name in names:
        if name == "handoff:due" or name.startswith(("handoff:waiting:", "handoff:out:")):
            found += [f"{name}: {member.decode()}" for member in client.zrange(name, 0, -1)]
        elif name.startswith("handoff:fair:"):
            found.append(f"{name}: of messages that are gone")
    return sorted(
        [*found, *_reserved(client, names), *_messages(client, queues, was_struck=was_struck)]
    )


def _reserved(client: Any, names: Iterable[str]) -> list[str]:
    """At every level of the books: handoffs, jobs, the days of tenants and of the installation."""
    found = []
    for name in names:
        if re.fullmatch(r"handoff:(\{[^}]+\}|day:.+)", name):
            reserved = [int(value or 0) for value in client.hmget(name, *RESERVED)]
            found += [f"{name}: reserved {reserved}"] if any(reserved) else []
        elif re.fullmatch(r"handoff:\{[^}]+\}:h:.+", name):
            own = [
                value.decode() for value in client.hmget(name, *RESERVATION) if value is not None
            ]
            found += [f"{name}: has set aside {own}"] if own else []
    return found


def _messages(client: Any, queues: Iterable[str], *, was_struck: bool) -> list[str]:
    found = [f"{queue}: {count} messages" for queue in queues if (count := client.llen(queue))]
    out, indexed = set(client.hkeys(UNACKED)), set(client.zrange(UNACKED_INDEX, 0, -1))
    if out and not was_struck:
        found.append(f"{UNACKED}: {len(out)} messages")
    if out != indexed:
        found.append(
            f"{UNACKED}: {len(out - indexed)} messages that never come back, {len(indexed - out)} that come back as nothing"
        )
    return found
