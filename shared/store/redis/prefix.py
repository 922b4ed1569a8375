"""Keys with a prefix of the installation, so that several installations and other applications
can share one Redis database.

All of our code, and each script, names keys without the prefix. `PrefixPacker` adds it when a
command is packed for the socket. In scripts, `shared/store/redis/script.py` adds it to each
call of a command.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis.connection import HiredisRespSerializer

NO_KEY = frozenset(
    {
        "ACL",
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
"""Names of the commands without a key. `Script` adds the prefix to the keys of EVALSHA. With
any other command, the first argument is a key.
"""
ONLY_KEYS = frozenset({"DEL", "EXISTS", "MGET", "UNLINK", "WATCH"})
"""Commands with nothing but keys."""


class PrefixPacker(HiredisRespSerializer):
    """Packs commands with a prefix before each key."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def pack(self, *command: Any) -> list[bytes]:
        """Return the command as Redis reads it."""
        packed: list[bytes] = super().pack(*with_prefix(self._prefix, command))
        return packed


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
        first = 1 + _find_streams(arguments)
        end = first + (len(arguments) - first) // 2
    prefixed_keys = [_add_prefix(prefix, key) for key in arguments[first:end]]
    return (name, *arguments[:first], *prefixed_keys, *arguments[end:])


def _find_streams(arguments: Sequence[Any]) -> int:
    """Return the place of the word STREAMS in the arguments of XREAD. The keys follow it."""
    for place, word in enumerate(arguments):
        if word in ("STREAMS", b"STREAMS"):
            return place
    raise ValueError("XREAD without STREAMS")


def _add_prefix(prefix: str, key: str | bytes) -> str | bytes:
    if isinstance(key, bytes):
        return prefix.encode() + key
    return prefix + key
