"""What is left in Redis when every job has ended: a run, or a test, that leaves something for ever fails."""

from __future__ import annotations

import re
from typing import Any

KEPT_FOR_EVER = (
    r"handoff:due",  # what must be woken: emptied by ending jobs
    r"handoff:jobs",  # one entry a job, removed with retention
    r"handoff:queues",  # one field a queue
    r"handoff:waiting:.+",  # one entry a handoff that nobody has claimed yet, or a wake-up that nobody has taken yet
    r"handoff:paused",  # one field a paused role
    r"handoff:held:.+",  # one entry a handoff of a paused role; gone when the role is resumed
    r"handoff:taken",  # two fields
    r"handoff:caps",  # four fields
)
OURS = ("handoff:", "celery-")
"""The rest is kombu's: one binding table a queue, the messages themselves, and an entry for each that is not acknowledged yet."""


def keys_for_ever(client: Any) -> list[str]:
    """The keys of ours and of Celery's without a TTL, but for those that must not have one."""
    names = sorted(name.decode() for name in client.scan_iter(count=1_000) if name.decode().startswith(OURS))
    suspects = [name for name in names if not any(re.fullmatch(pattern, name) for pattern in KEPT_FOR_EVER)]
    pipe = client.pipeline(transaction=False)
    for name in suspects:
        pipe.ttl(name)
    return [name for name, seconds in zip(suspects, pipe.execute(), strict=True) if seconds == -1]


def left_behind(client: Any) -> list[str]:
    """What should be gone when every job has ended: wake-ups, waits, turns, reservations, keys without a TTL."""
    names = [name.decode() for name in client.scan_iter(match="handoff:*", count=1_000)]
    found = [f"{name}: no TTL" for name in keys_for_ever(client)]
    found += [f"{name}: turns of a handoff" for name in names if re.search(r"\}:t:", name)]
    for name in names:
        if name == "handoff:due" or name.startswith("handoff:waiting:"):
            found += [f"{name}: {member.decode()}" for member in client.zrange(name, 0, -1)]
        elif re.fullmatch(r"handoff:\{[^}]+\}", name):
            reserved = client.hmget(name, "reserved_turns", "reserved_tokens", "reserved_usd")
            found += [f"{name}: reserved {[int(value or 0) for value in reserved]}"] if any(int(value or 0) for value in reserved) else []
    return sorted(found)
