"""TLS contexts of connections to Redis, made once a process and not once a connection.

redis-py makes a context for each connection. That takes about 50 ms of processor time, because
redis-py reads the system's CAs. Behind sentinels, a process that lost its connection opens
several to find another primary. A process of many threads then could not renew its leases, and
its watchdog ended it.

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
    """A TLS connection of redis-py whose context was made before."""

    def _wrap_socket_with_ssl(self: Any, plain: Any) -> ssl.SSLSocket:
        """Return `plain`, a connected socket, after the handshake."""
        files = (self.ca_certs, self.ca_path, self.certfile, self.keyfile)
        as_of = tuple(_written_at(Path(file)) for file in files if file)
        context = _context(*files, self.cert_reqs, self.check_hostname, as_of)
        plain.settimeout(self.socket_connect_timeout)  # or a silent server holds up the handshake
        secure: ssl.SSLSocket = context.wrap_socket(plain, server_hostname=self.host)
        secure.settimeout(self.socket_timeout)
        return secure


def share_contexts(pool: Any) -> None:
    """Let the TLS connections of this pool, and those to its sentinels, share contexts.
    Without TLS, nothing changes.

    Before the pool has connected. redis-py, kombu and Celery take no class for their
    connections to sentinels.
    """
    sentinels = getattr(getattr(pool, "sentinel_manager", None), "sentinels", ())
    for each in (pool, *(sentinel.connection_pool for sentinel in sentinels)):
        if issubclass(each.connection_class, redis.SSLConnection):
            each.connection_class = _sharing(each.connection_class)


@cache
def _sharing(kind: type) -> type:
    if issubclass(kind, _SharesContexts):
        return kind
    return type(kind.__name__, (_SharesContexts, kind), {})


def _written_at(place: Path) -> int:
    """Return the modification time of a file, or of the newest file in a folder; ns."""
    times: list[int] = [
        path.stat().st_mtime_ns for path in (place, *(place.iterdir() if place.is_dir() else ()))
    ]
    return max(times)


@lru_cache(maxsize=8)
def _context(
    ca_certs: str | None,
    ca_path: str | None,
    certificate: str | None,
    key: str | None,
    wanted: ssl.VerifyMode,
    checks_host: bool,
    _as_of: tuple[int, ...],
) -> ssl.SSLContext:
    """Return the context. `_as_of`: modification times of the files, so that a new certificate
    needs no restart.
    """
    context = ssl.create_default_context(cafile=ca_certs, capath=ca_path)
    context.check_hostname = checks_host and wanted != ssl.CERT_NONE
    context.verify_mode = wanted
    if certificate or key:
        context.load_cert_chain(certificate or "", key)
    return context
