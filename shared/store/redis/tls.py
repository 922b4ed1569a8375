"""TLS contexts of connections to Redis. A process makes a context once, and not for each
connection.

redis-py makes a context for each connection. That takes about 50 ms of processor time, because
redis-py reads the system's CAs. Behind sentinels, a process that lost its connection opens
several connections to find another primary. With many threads, it could not renew its leases
in that time, and its watchdog ended it.

Only our pools share contexts. Other connections in the process keep the contexts that redis-py
makes.
"""

from __future__ import annotations

import ssl
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import redis


class _SharesContexts:
    """A TLS connection of redis-py that uses a cached context."""

    def _wrap_socket_with_ssl(self: Any, plain: Any) -> ssl.SSLSocket:
        """Return `plain`, a connected socket, after the handshake."""
        files = (self.ca_certs, self.ca_path, self.certfile, self.keyfile)
        as_of = tuple(map(_read_modified_ns, filter(None, files)))
        context = _get_context(*files, self.cert_reqs, self.check_hostname, as_of)
        # without a timeout, a silent server would block the handshake
        plain.settimeout(self.socket_connect_timeout)
        secure: ssl.SSLSocket = context.wrap_socket(plain, server_hostname=self.host)
        secure.settimeout(self.socket_timeout)
        return secure


def share_contexts(pool: Any) -> None:
    """Let the TLS connections of this pool, and those to its sentinels, share contexts.
    Without TLS, nothing changes.

    Call this before the pool connects. It sets the class of the pools, because redis-py, kombu
    and Celery have no option for the class of connections to sentinels.
    """
    pools = [pool]
    for sentinel in getattr(getattr(pool, "sentinel_manager", None), "sentinels", ()):
        pools.append(sentinel.connection_pool)
    for each in pools:
        if issubclass(each.connection_class, redis.SSLConnection):
            each.connection_class = _share_contexts(each.connection_class)


@cache
def _share_contexts(kind: type) -> type:
    """Return a subclass of a connection class that uses cached contexts."""
    if issubclass(kind, _SharesContexts):
        return kind
    return type(kind.__name__, (_SharesContexts, kind), {})


def _read_modified_ns(place: str) -> int:
    """Return the modification time in ns of a file, or of a folder or its newest file."""
    path = Path(place)
    newest = path.stat().st_mtime_ns
    if path.is_dir():
        for file in path.iterdir():
            newest = max(newest, file.stat().st_mtime_ns)
    return newest


@lru_cache(maxsize=8)
def _get_context(
    ca_certs: str | None,
    ca_path: str | None,
    certificate: str | None,
    key: str | None,
    verify_mode: ssl.VerifyMode,
    checks_host: bool,
    _as_of: tuple[int, ...],
) -> ssl.SSLContext:
    """Return a context from the cache.

    Args:
        _as_of: modification times of the files. With them, a new certificate needs no restart.
    """
    context = ssl.create_default_context(cafile=ca_certs, capath=ca_path)
    context.check_hostname = checks_host and verify_mode != ssl.CERT_NONE
    context.verify_mode = verify_mode
    if certificate or key:
        context.load_cert_chain(certificate or "", key)
    return context
