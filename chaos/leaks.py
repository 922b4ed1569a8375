"""Leaks: keys and entries in Redis that should be gone when every job has ended. A run or a
test with a leak fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from handoff_queue.shared.types.budget_measures import AMOUNTS, MEASURES

PERSISTENT_KEYS = (
    # due jobs and handoffs: the end of a job removes its entry, and a sweep removes wake-ups
    r"handoff:due(:.+)?",
    r"handoff:id_secret",
    r"handoff:jobs",  # one entry a job, removed with retention
    r"handoff:queues",  # one field a queue
    # one entry for each unclaimed handoff, and for each wake-up in a queue
    r"handoff:waiting:.+",
    r"handoff:paused",  # one field a paused role
    r"handoff:paused_handoffs:.+",  # one entry a handoff; gone when the role is unpaused
    # one entry for each message that is being published, or was taken without a claim or evaluation
    r"handoff:out:.+",
    r"handoff:fair:.+",  # order of the messages in a queue
    r"handoff:tokens",  # one field a token of the HTTP API
    r"handoff:schedules",  # one field a schedule
    r"handoff:schedule_slots",  # one entry a schedule
    r"handoff:schedule:[0-9a-f]+:job",  # one a schedule, removed with it
    r"handoff:audit",  # at most about 100,000 entries
    r"handoff:audit_callers",  # a member for each token that has acted
    r"handoff:audit_of:.+",  # at most about 10,000 entries
    r"handoff:audit_refusals(:.*)?",  # at most about 10,000 entries of each Redis user
    r"handoff:refused_commands",
    r"handoff:caps",  # six fields
    r"handoff:dead",  # at most 1,000 letters, each removed after its retention
    r"handoff:outage",  # four fields
    r"handoff:metrics(:.+)?",  # one field or member a time series or a value of a label
)
HANDOFF_PROJECT = ("handoff:", "celery-")
"""Beginnings of the names of our keys and Celery's keys. Other keys are kombu's: a binding
table for each queue, the messages, and entries of unacknowledged messages.
"""


def find_keys_without_expiry(client: Any) -> list[str]:
    """Return the names of our keys and Celery's keys without a TTL, except for keys that are
    kept without a limit of time.
    """
    persistent = re.compile("|".join(PERSISTENT_KEYS))
    suspects: list[str] = []
    for name in sorted(_list_key_names(client, "*")):
        if name.startswith(HANDOFF_PROJECT) and not persistent.fullmatch(name):
            suspects.append(name)
    pipe = client.pipeline(transaction=False)
    for name in suspects:
        pipe.ttl(name)
    ttls = zip(suspects, pipe.execute(), strict=True)
    return [name for name, seconds in ttls if seconds == -1]


def _list_key_names(client: Any, pattern: str) -> list[str]:
    """Return the names of all keys that match the pattern."""
    return [name.decode() for name in client.scan_iter(match=pattern, count=1_000)]


ENTRIES_OF_OPEN_JOBS = ("handoff:waiting:", "handoff:out:", "handoff:open:")
"""Beginnings of the names of sorted sets that only have entries while a job is open."""
RESERVED = tuple(measure.reserved for measure in MEASURES)
"""Fields of a job's and a day's budget that hold reservations for calls."""
RESERVATION = (*(amount.reserved for amount in AMOUNTS), "r_day", "r_model")
"""Fields of a handoff that hold its reservation for a call."""
UNACKED, UNACKED_INDEX = "unacked", "unacked_index"
"""kombu's keys: unacknowledged messages, and their redelivery times."""


def find_leaks(client: Any, queues: Iterable[str], *, was_struck: bool) -> list[str]:
    """Return one line for each leak after all jobs have ended. Leaks are keys without a TTL, turns
    of handoffs, entries of waiting messages, shared runs, reservations, and messages.

    Args:
        queues: queues that must be empty.
        was_struck: True if processes were killed. Then unacknowledged messages are not a leak if
            kombu's index has them: it redelivers them later.
    """
    names = _list_key_names(client, "handoff:*")
    leaks = [f"{name}: no TTL" for name in find_keys_without_expiry(client)]
    for name in names:
        if "}:t:" in name:
            leaks.append(f"{name}: turns of a handoff")
        if "}:draft:" in name:
            leaks.append(f"{name}: draft of a handoff")
        if name == "handoff:due" or name.startswith(ENTRIES_OF_OPEN_JOBS):
            for member in client.zrange(name, 0, -1):
                leaks.append(f"{name}: {member.decode()}")
        elif name.startswith("handoff:due:"):
            for member in client.zrange(name, 0, -1):
                if b"/" in member:  # otherwise the next sweep removes it
                    leaks.append(f"{name}: {member.decode()}")
        elif name.startswith("handoff:fair:"):
            leaks.append(f"{name}: of messages that are gone")
        elif name.startswith("handoff:shared_run:"):
            leaks.append(f"{name}: of handoffs that have ended")
    return sorted(
        [
            *leaks,
            *_find_reservations(client, names),
            *_list_messages(client, queues, was_struck=was_struck),
        ]
    )


def _find_reservations(client: Any, names: Iterable[str]) -> list[str]:
    """Return one line for each reservation of a job, a day or a handoff."""
    leaks: list[str] = []
    for name in names:
        if re.fullmatch(r"handoff:(\{[^}]+\}:progress|day:.+)", name):
            reserved_amounts = [int(value or 0) for value in client.hmget(name, *RESERVED)]
            if any(reserved_amounts):
                leaks.append(f"{name}: reserved {reserved_amounts}")
        elif re.fullmatch(r"handoff:\{[^}]+\}:h:.+", name):
            values = client.hmget(name, *RESERVATION)
            reservations = [value.decode() for value in values if value is not None]
            if reservations:
                leaks.append(f"{name}: has set aside {reservations}")
    return leaks


def _list_messages(client: Any, queues: Iterable[str], *, was_struck: bool) -> list[str]:
    leaks: list[str] = []
    for queue in queues:
        if count := client.llen(queue):
            leaks.append(f"{queue}: {count} messages")
    unacked_tags = set(client.hkeys(UNACKED))
    indexed_tags = set(client.zrange(UNACKED_INDEX, 0, -1))
    if unacked_tags and not was_struck:
        leaks.append(f"{UNACKED}: {len(unacked_tags)} messages")
    if unacked_tags != indexed_tags:
        leaks.append(
            f"{UNACKED}: {len(unacked_tags - indexed_tags)} messages that never come back,"
            f" {len(indexed_tags - unacked_tags)} that come back as nothing"
        )
    return leaks
