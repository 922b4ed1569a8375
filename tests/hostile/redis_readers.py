"""The commands of Redis that answer with stored values, and what Redis sees while a system runs."""

from __future__ import annotations

import base64
import binascii
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import redis

from handoff_queue.shared.store.payloads import SHORT_BYTES, unpack
from handoff_queue.shared.types.errors import StoreError
from tests.waiting import wait_until

READERS: dict[str, tuple[str, ...]] = {
    "get": ("GET", "KEY"),
    "getrange": ("GETRANGE", "KEY", "0", "-1"),
    "mget": ("MGET", "KEY"),
    "set": ("SET", "KEY", "x", "GET"),
    "hget": ("HGET", "KEY", "a"),
    "hgetall": ("HGETALL", "KEY"),
    "hkeys": ("HKEYS", "KEY"),
    "hmget": ("HMGET", "KEY", "a"),
    "hvals": ("HVALS", "KEY"),
    "brpop": ("BRPOP", "KEY", "1"),
    "lindex": ("LINDEX", "KEY", "0"),
    "lrange": ("LRANGE", "KEY", "0", "-1"),
    "rpop": ("RPOP", "KEY"),
    "smembers": ("SMEMBERS", "KEY"),
    "zpopmin": ("ZPOPMIN", "KEY"),
    "zrange": ("ZRANGE", "KEY", "0", "-1"),
    "zrangebyscore": ("ZRANGEBYSCORE", "KEY", "-inf", "+inf"),
    "zrevrangebyscore": ("ZREVRANGEBYSCORE", "KEY", "+inf", "-inf"),
    "xread": ("XREAD", "STREAMS", "KEY", "0"),
    "xrevrange": ("XREVRANGE", "KEY", "+", "-"),
}
"""Command that answers with values of a key -> an example."""
FIGURES = frozenset({
    "exists", "hexists", "hlen", "hstrlen", "llen", "pttl", "scard", "sismember", "type", "watch",
    "zcard", "zcount", "zrank", "zscore",
})  # fmt: skip
"""Reading commands that answer with a figure only. They find no value that the caller lacks."""
SERVER_COMMANDS: tuple[tuple[str, ...], ...] = (
    ("ACL", "LOG"),
    ("CLIENT", "INFO"),
    ("CLIENT", "LIST"),
    ("CLIENT", "TRACKING", "ON", "BCAST"),
    ("COMMANDLOG", "GET", "-1", "slow"),
    ("CONFIG", "GET", "*"),
    ("DBSIZE",),
    ("DEBUG", "OBJECT", "supervisor"),
    ("HELLO",),
    ("INFO", "everything"),
    ("KEYS", "*"),
    ("LATENCY", "HISTOGRAM"),
    ("MEMORY", "STATS"),
    ("MONITOR",),
    ("PUBSUB", "CHANNELS"),
    ("PUBSUB", "SHARDCHANNELS"),
    ("RANDOMKEY",),
    ("SCAN", "0"),
    ("SLOWLOG", "GET", "-1"),
)
"""Commands about the server, its connections and its keys."""
_QUOTED = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_WORD = re.compile(r"[A-Za-z0-9+/]{16,}={0,2}")


def find_texts(value: bytes) -> Iterator[bytes]:
    """Return a stored value, and the texts in it that are compressed or in base64."""
    yield value
    for word in _WORD.findall(value.decode("latin-1")):
        try:
            yield base64.b64decode(word, validate=True)
        except binascii.Error:
            continue
    try:
        yield unpack(value, SHORT_BYTES).encode()
    except StoreError:
        return


def has_text(value: bytes, text: str) -> bool:
    """Return whether a stored value has a text."""
    return any(text.encode() in part for part in find_texts(value))


@dataclass
class Recording:
    """The commands that Redis has run."""

    commands: list[list[str]] = field(default_factory=list)
    """The words of each command, also of those of scripts."""

    def find_keys(self, text: str) -> set[str]:
        """Return the keys that had a text, without the keys that have it in their names."""
        return self._find_names(text, publishes=False)

    def find_channels(self, text: str) -> set[str]:
        """Return the channels of messages with a text."""
        return self._find_names(text, publishes=True)

    def _find_names(self, text: str, *, publishes: bool) -> set[str]:
        names: set[str] = set()
        for name, *arguments in self.commands:
            if name.upper() in {"EVALSHA", "ACL", "AUTH"} or not arguments:
                continue
            has_it = has_text(" ".join(arguments[1:]).encode(), text)
            if has_it and text not in arguments[0] and (name.upper() == "PUBLISH") is publishes:
                names.add(arguments[0])
        return names


@contextmanager
def recorded_commands(address: str) -> Iterator[Recording]:
    """Record the commands of all users until the end of the block.

    Args:
        address: URL of the user with all rights.
    """
    recording, end = Recording(), "the end of the recording"
    with redis.Redis.from_url(address) as admin, admin.monitor() as monitor:

        def record() -> None:
            words = [""]
            while words[-1] != end:
                words = _split(monitor.connection.read_response())
                recording.commands.append(words)

        thread = threading.Thread(target=record, daemon=True)
        thread.start()
        try:
            yield recording
        finally:
            with redis.Redis.from_url(address) as other:
                other.echo(end)
            wait_until(lambda: not thread.is_alive(), expected=end)


def _split(line: bytes) -> list[str]:
    """Return the words of a command from a line of MONITOR."""
    return [word.decode("unicode_escape") for word in _QUOTED.findall(line)]


def read_values(admin: Any, key: bytes) -> list[bytes]:
    """Return all values of a key, and the names of its fields."""
    match admin.type(key):
        case b"string":
            return [admin.get(key)]
        case b"hash":
            return [part for pair in admin.hgetall(key).items() for part in pair]
        case b"list":
            return list(admin.lrange(key, 0, -1))
        case b"set":
            return list(admin.smembers(key))
        case b"zset":
            return list(admin.zrange(key, 0, -1))
        case b"stream":
            entries = admin.xrange(key)
            return [part for _, fields in entries for pair in fields.items() for part in pair]
        case kind:
            raise AssertionError(kind)
