"""Checks of the events that Flower keeps. An event of another program cannot break a page of
Flower.

Every program that reaches Redis can publish an event. Flower stores the fields of an event as they
are, and a field of another type ends each page that sorts or formats it with status 500.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from flower.events import Events

_KIND = re.compile(r"(?:task|worker)-[a-z]{1,32}")
_TEXTS = frozenset({
    "args", "eta", "exception", "exchange", "expires", "hostname", "kwargs", "name", "parent_id",
    "queue", "result", "root_id", "routing_key", "sw_ident", "sw_sys", "sw_ver", "traceback",
    "type", "uuid",
})  # fmt: skip
_NUMBERS = frozenset({
    "active", "expired", "failed", "freq", "local_received", "pid", "processed", "received",
    "rejected", "requeue", "retries", "retried", "revoked", "runtime", "sent", "signum", "started",
    "succeeded", "terminated", "timestamp", "utcoffset",
})  # fmt: skip
MAX_CHARS = 100_000
"""Characters of the longest text of an event. Events of this project have a few hundred."""
LARGEST = 4e9
"""The largest number of an event. It is a time in Unix seconds in the year 2096."""


def check_events() -> None:
    """Have Flower keep only the usable part of each event."""
    keep = Events.on_event

    def on_event(self: Any, event: Any) -> None:
        if clean := usable_event(event):
            keep(self, clean)

    Events.on_event = on_event


def usable_event(event: object) -> dict[str, Any] | None:
    """Return the known fields of an event whose values have the type that Celery sends. Return
    None if a field that Flower needs is missing.
    """
    if not isinstance(event, Mapping):
        return None
    clean: dict[str, Any] = {}
    for name, value in event.items():
        if _is_usable(name, value):
            clean[name] = value
    needed = {"type", "hostname", "timestamp", "local_received", "clock"}
    if str(clean.get("type")).startswith("task-"):
        needed.add("uuid")
    if not needed <= clean.keys() or not _KIND.fullmatch(clean["type"]):
        return None
    return clean


def _is_usable(name: object, value: object) -> bool:
    """Return whether a field is known and its value has the right type."""
    if name in _TEXTS:
        return isinstance(value, str) and len(value) <= MAX_CHARS
    if name in _NUMBERS:
        return _is_number(value)
    if name == "clock":  # a logical clock has no limit
        return isinstance(value, int)
    if name == "loadavg":
        return isinstance(value, list | tuple) and all(map(_is_number, value))
    return False


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) <= LARGEST
