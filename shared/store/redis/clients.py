"""redis-py's clients for an address, and their keys with a prefix.

Keys may have a prefix of the installation, so that several installations and other
applications can share one Redis database.

All of our code, and each script, names keys without the prefix. `PrefixPacker` adds it when a
command is packed for the socket. In scripts, `shared/store/redis/script.py` adds it to each
call of a command.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import redis
from redis.sentinel import Sentinel

from handoff_queue.shared.settings.redis_address import TLS_FILES, RedisAddress, read_address
from handoff_queue.shared.store.redis.fast_path import (
    DirectClient,
    DirectConnection,
    DirectPacker,
    DirectPool,
    ManagedConnection,
    ManagedTlsConnection,
)
from handoff_queue.shared.store.redis.tls import share_contexts
from handoff_queue.shared.store.redis.versions import driver_info
from handoff_queue.shared.types.errors import UserError

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
"""Names of the commands without a key. `Script` adds the prefix to the keys of EVALSHA. With
any other command, the first argument is a key.
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
        first = 1 + _place_of_streams(arguments)
        end = first + (len(arguments) - first) // 2
    prefixed = [_prefixed(prefix, key) for key in arguments[first:end]]
    return (name, *arguments[:first], *prefixed, *arguments[end:])


def _place_of_streams(arguments: Sequence[Any]) -> int:
    """Return the place of the word STREAMS in the arguments of XREAD. The keys follow it."""
    for place, word in enumerate(arguments):
        if word in ("STREAMS", b"STREAMS"):
            return place
    raise ValueError("XREAD without STREAMS")


def _prefixed(prefix: str, key: str | bytes) -> str | bytes:
    if isinstance(key, bytes):
        return prefix.encode() + key
    return prefix + key


CONNECT_TIMEOUT_S = 5.0
UNBOUNDED = 2**31


def client_for(url: str, timeout_s: float, most: int | None) -> redis.Redis:
    """Return a client that has no connection yet.

    Args:
        timeout_s: seconds that Redis may be silent.
        most: open connections at once; a thread beyond the limit waits. None, or a URL with
            sentinels: no limit.

    Raises:
        UserError: the URL is invalid, or names files that cannot be used.
    """
    client = _client_for(url, timeout_s, most)
    share_contexts(client.connection_pool)
    return client


def _client_for(url: str, timeout_s: float, most: int | None) -> redis.Redis:
    try:
        address = read_address(url)
    except ValueError as error:
        raise UserError(f"HANDOFF_REDIS_URL cannot be used: {error}") from error
    _check_files(address)
    options: dict[str, Any] = {
        "db": address.database,
        "username": address.username,
        "password": address.password,
        "socket_timeout": timeout_s,
        "socket_connect_timeout": min(CONNECT_TIMEOUT_S, timeout_s),
        "health_check_interval": 25,
        "protocol": 2,  # one shape of answers, for all versions of the server
        "command_packer": PrefixPacker(address.prefix) if address.prefix else DirectPacker(),
        **driver_info(),
        **(address.tls or {}),
    }
    if address.master_name is not None:
        return _behind_sentinels(address, options)
    (options["host"], options["port"]), kind = (
        address.hosts[0],
        redis.SSLConnection if address.tls is not None else DirectConnection,
    )
    if most is None:
        return DirectClient(connection_pool=redis.ConnectionPool(kind, UNBOUNDED, **options))
    pool: Any = DirectPool
    return DirectClient(connection_pool=pool(most, timeout_s, kind, **options))


def _behind_sentinels(address: RedisAddress, options: dict[str, Any]) -> redis.Redis:
    """Return a client whose new connections ask the sentinels for the primary."""
    sentinels: Any = Sentinel(address.hosts, sentinel_kwargs=address.sentinel_options)  # type: ignore[no-untyped-call]
    secure, name = address.tls is not None, address.master_name
    if secure:
        options["connection_class"] = ManagedTlsConnection
    else:
        options["connection_class"] = ManagedConnection
    client: redis.Redis = sentinels.master_for(
        name, DirectClient, max_connections=UNBOUNDED, ssl=secure, **options
    )
    return client


def _check_files(address: RedisAddress) -> None:
    """Check the TLS files one by one, because OpenSSL's errors do not name the file."""
    tls = address.tls or {}
    (ca, certificate, key), folder = (tls.get(name) for name in TLS_FILES), tls.get("ssl_ca_path")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    wrong = "the file of its option ssl_ca_certs cannot be read, or holds no certificate"
    try:
        if ca is not None:
            context.load_verify_locations(ca)
        wrong = "the folder of its option ssl_ca_path cannot be read"
        if folder is not None:
            next(Path(folder).iterdir(), None)
        wrong = (
            "the files of its options ssl_certfile and ssl_keyfile cannot be read, or do not belong"
            " together"
        )
        if certificate is not None:
            context.load_cert_chain(certificate, key)
    except OSError as error:
        raise UserError(f"HANDOFF_REDIS_URL cannot be used: {wrong}") from error
