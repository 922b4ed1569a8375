"""Makes the redis-py client for the address of a server."""

from __future__ import annotations

import ssl
import weakref
from functools import cache
from pathlib import Path
from typing import Any

import redis
from redis.sentinel import Sentinel, SentinelManagedConnection, SentinelManagedSSLConnection

from handoff_queue.shared.settings.file_permissions import read_private
from handoff_queue.shared.settings.redis_url import (
    TLS_FILES,
    URL_VARIABLE,
    RedisAddress,
    read_address,
)
from handoff_queue.shared.store.redis.prefix import PrefixPacker
from handoff_queue.shared.store.redis.tls import share_contexts
from handoff_queue.shared.types.errors import UserError

CONNECT_TIMEOUT_S = 5.0
"""Most seconds to open a connection."""
UNBOUNDED = 2**31
"""Connections of a pool without a limit. redis-py takes no None here."""


class _ClosesItsSocket:
    """A connection that closes its socket when Python collects an open client. Otherwise, Python
    may collect the socket before the connection, and warn about it.
    """

    _end: weakref.finalize[..., Any] | None = None

    def _connect(self) -> Any:
        plain: Any = super()
        socket = plain._connect()
        if self._end is not None:
            self._end.detach()
        self._end = weakref.finalize(self, socket.close)
        self._end.atexit = False
        return socket


class _NamesAddress(_ClosesItsSocket):
    """A connection whose error for a connect timeout names the address. redis-py's error does
    not.
    """

    def _connect(self) -> Any:
        connection: Any = self
        try:
            return super()._connect()
        except TimeoutError as error:
            address = f"{connection.host}:{connection.port}"
            raise redis.TimeoutError(f"Timeout connecting to {address}") from error


class PlainConnection(_NamesAddress, redis.Connection):
    """Connection to the server of the address, without TLS."""


class _ClosesWhenInterrupted(SentinelManagedConnection):
    """Connection that closes its socket if the thread is interrupted while it waits for an answer.
    The client of redis-py keeps the socket open, so the next command would read that answer.
    """

    def read_response(
        self, *arguments: Any, disconnect_on_error: bool | None = True, **more: Any
    ) -> Any:
        plain: Any = super()
        return plain.read_response(*arguments, disconnect_on_error=disconnect_on_error, **more)


class SentinelConnection(_NamesAddress, _ClosesWhenInterrupted):
    """Connection to the server that Sentinel names."""


class SentinelTlsConnection(_ClosesItsSocket, _ClosesWhenInterrupted, SentinelManagedSSLConnection):
    """Connection with TLS to the server that Sentinel names."""


class TlsConnection(_ClosesItsSocket, redis.SSLConnection):
    """Connection with TLS to the server of the address."""


@cache
def build_driver_info() -> dict[str, Any]:
    """Return the option for a connection that says which driver it belongs to.

    All clients and connections share the object. Otherwise each client reads the version of
    redis-py from the file system. The versions of redis-py below 7.2 read it when they are
    imported, and need no option.
    """
    if hasattr(redis, "DriverInfo"):
        return {"driver_info": redis.DriverInfo()}
    return {}


def refuse_maintenance_notifications(pool: Any) -> None:
    """Let a pool of another package ask for no notifications of the server's maintenance.

    redis-py asks with a subcommand of CLIENT that only a cloud service knows. Redis 6.2 refuses it
    to our users, and each refusal would be an attempt in the audit.
    """
    if "maint_notifications_config" in pool.connection_kwargs:
        pool.connection_kwargs["maint_notifications_config"] = None


def create_client(
    url: str, timeout_s: float, limit: int | None, url_name: str = URL_VARIABLE
) -> redis.Redis:
    """Return a client that has no connection yet.

    Args:
        timeout_s: seconds that Redis may be silent.
        limit: open connections at once; a thread beyond the limit waits. None, or a URL with
            sentinels: no limit.
        url_name: name of the URL in errors.

    Raises:
        UserError: the URL is invalid, or names files that cannot be used.
    """
    try:
        address = read_address(url)
        _check_files(address)
    except ValueError as error:
        raise UserError(f"{url_name} cannot be used: {error}") from error
    client = _create_client(address, timeout_s, limit)
    share_contexts(client.connection_pool)
    return client


def _create_client(address: RedisAddress, timeout_s: float, limit: int | None) -> redis.Redis:
    options: dict[str, Any] = {
        "db": address.database,
        "username": address.username,
        "password": address.password,
        "socket_timeout": timeout_s,
        "socket_connect_timeout": min(CONNECT_TIMEOUT_S, timeout_s),
        "health_check_interval": 25,
        "protocol": 2,  # one shape of answers, for all versions of the server
        **build_driver_info(),
        **(address.tls or {}),
    }
    if address.prefix:
        options["command_packer"] = PrefixPacker(address.prefix)
    if address.master_name is not None:
        return _create_sentinel_client(address, options)
    options["host"], options["port"] = address.hosts[0]
    kind = TlsConnection if address.tls is not None else PlainConnection
    if limit is None:
        pool: Any = redis.ConnectionPool(kind, UNBOUNDED, **options)
    else:
        pool_class: Any = redis.BlockingConnectionPool
        pool = pool_class(limit, timeout_s, kind, **options)
    return redis.Redis(connection_pool=pool)


def _create_sentinel_client(address: RedisAddress, options: dict[str, Any]) -> redis.Redis:
    """Return a client whose new connections ask the sentinels for the primary."""
    sentinels: Any = Sentinel(address.hosts, sentinel_kwargs=address.sentinel_options)  # type: ignore[no-untyped-call]
    is_secure = address.tls is not None
    options["connection_class"] = SentinelTlsConnection if is_secure else SentinelConnection
    client: redis.Redis = sentinels.master_for(
        address.master_name, redis.Redis, max_connections=UNBOUNDED, ssl=is_secure, **options
    )
    return client


def _check_files(address: RedisAddress) -> None:
    """Check the TLS files one by one, because OpenSSL's errors do not name the file.

    Raises:
        ValueError: a file cannot be used.
        UserError: other users can read the private key.
    """
    tls = address.tls
    if tls is None:
        return
    ca, certificate, key = (tls.get(name) for name in TLS_FILES)
    folder = tls.get("ssl_ca_path")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    wrong = "the file of its option ssl_ca_certs cannot be read, or holds no certificate"
    try:
        if ca is not None:
            context.load_verify_locations(ca)
        wrong = "the folder of its option ssl_ca_path cannot be read"
        if folder is not None:
            next(Path(folder).iterdir(), None)
        wrong = (
            "the files of its options ssl_certfile and ssl_keyfile cannot be read, or do not"
            " belong together"
        )
        if key is not None:
            read_private(Path(key))
        if certificate is not None:
            context.load_cert_chain(certificate, key)
    except OSError as error:
        raise ValueError(wrong) from error
