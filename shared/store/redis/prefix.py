"""Keys that begin with a prefix of the fleet, so that several fleets and other applications
share one Redis database.

All of our code, and every script, names keys without the prefix. It is added where a command
is packed for the socket (`PrefixPacker`) and where a script calls a command
(`shared/store/redis/script.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from handoff_queue.shared.store.redis.fast_path import DirectPacker

NO_KEY = frozenset(
    {
        "AUTH",
        "CLIENT",
        "CONFIG",
        "DISCARD",
        "ECHO",
        "EVALSHA",
        "EXEC",
        "HELLO",
        "INFO",
        "MULTI",
        "PING",
        "READONLY",
        "ROLE",
        "SCRIPT",
        "SELECT",
        "TIME",
        "UNWATCH",
    }
)
"""Names of the commands without a key. `Script` adds the prefix to the keys of EVALSHA. With any
other command, the first argument is a key.
"""
ONLY_KEYS = frozenset({"DEL", "EXISTS", "MGET", "UNLINK", "WATCH"})
"""Commands with nothing but keys."""


class PrefixPacker(DirectPacker):
    """Packs commands with a prefix before each key."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def pack(self, *command: Any) -> list[bytes]:
        """Return the command as Redis reads it."""
        return super().pack(*with_prefix(self._prefix, command))


def with_prefix(prefix: str, command: Sequence[Any]) -> tuple[Any, ...]:
    """Return the command with the prefix before each key."""
    name, *arguments = command
    kind = name.partition(" ")[0].upper()
    if kind in NO_KEY or not arguments:
        return tuple(command)
    first, end = 0, 1
    if kind in ONLY_KEYS:
        end = len(arguments)
    elif kind == "XREAD":
        first = 1 + next(n for n, word in enumerate(arguments) if word in ("STREAMS", b"STREAMS"))
        end = first + (len(arguments) - first) // 2
    named = (_prefixed(prefix, key) for key in arguments[first:end])
    return (name, *arguments[:first], *named, *arguments[end:])


def _prefixed(prefix: str, key: str | bytes) -> str | bytes:
    if isinstance(key, bytes):
        return prefix.encode() + key
    return prefix + key
