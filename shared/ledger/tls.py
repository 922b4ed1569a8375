"""TLS contexts of connections to Redis, made once a process and not once a connection.

redis-py makes one for each connection: some 50 ms of processor time, nearly all of it to read the system's CAs, which are then
trusted beside those that it was given. Behind sentinels, where whoever lost its connection opens several to find another primary, that was
enough to keep a process of many threads from renewing its leases, until its watchdog took it for frozen.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import redis

_secure: Any = redis.SSLConnection
_wrapped_by_redis_py = _secure._wrap_socket_with_ssl
_ONLY_THERE = (
    "ca_data",
    "certificate_password",
    "ssl_ciphers",
    "ssl_exclude_verify_flags",
    "ssl_include_verify_flags",
    "ssl_min_version",
    "ssl_validate_ocsp",
    "ssl_validate_ocsp_stapled",
)
"""What no address of ours can say, and connections of somebody else's in this process may have: theirs stay redis-py's."""
_ours: set[tuple[str | None, ...]] = set()
"""The files of addresses of ours; connections with others are redis-py's, too."""


def share_contexts(tls: Mapping[str, Any]) -> None:
    """From now on, in this process, for every client of an address with these options: redis-py, kombu and Celery take no class for their
    connections to sentinels.
    """
    _ours.add(
        tuple(tls.get(f"ssl_{name}") for name in ("ca_certs", "ca_path", "certfile", "keyfile"))
    )
    _secure._wrap_socket_with_ssl = _wrapped


def _wrapped(connection: Any, plain: Any) -> ssl.SSLSocket:
    """`plain`, a connected socket, after the handshake."""
    files = (connection.ca_certs, connection.ca_path, connection.certfile, connection.keyfile)
    if files not in _ours or any(getattr(connection, name, None) for name in _ONLY_THERE):
        secured: ssl.SSLSocket = _wrapped_by_redis_py(connection, plain)
        return secured
    as_of = tuple(_written_at(Path(file)) for file in files if file)
    context = _context(*files, connection.cert_reqs, connection.check_hostname, as_of)
    plain.settimeout(
        connection.socket_connect_timeout
    )  # one who speaks no TLS waits for more than a handshake has
    secure: ssl.SSLSocket = context.wrap_socket(plain, server_hostname=connection.host)
    secure.settimeout(connection.socket_timeout)
    return secure


def _written_at(place: Path) -> int:
    """When a file, or the newest of a folder, was written; ns."""
    times: list[int] = [
        one.stat().st_mtime_ns for one in (place, *(place.iterdir() if place.is_dir() else ()))
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
    """`_as_of`: when the files were written: a new certificate is taken without a restart."""
    context = ssl.create_default_context(cafile=ca_certs, capath=ca_path)
    context.check_hostname = checks_host
    context.verify_mode = wanted
    if certificate or key:
        context.load_cert_chain(certificate or "", key)
    return context
