"""TLS contexts: the trusted certificates, and how often a context is built. Tests over real TLS:
tests/e2e/test_tls.py, test_sentinels.py.
"""

from __future__ import annotations

import os
import socket
import ssl
import time
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import redis

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.redis import tls
from handoff_queue.shared.store.redis.client_factory import create_client
from tests.doubles.tls_proxy import a_certificate

pytestmark = pytest.mark.skipif(which("openssl") is None, reason="openssl makes the certificates")


MAX_TEST_S = 20.0


class PlainSocket:
    """Connected socket that records its timeouts."""

    def __init__(self) -> None:
        self.timeouts: list[float] = []

    def settimeout(self, seconds: float) -> None:
        self.timeouts.append(seconds)


@pytest.fixture
def tls_contexts(monkeypatch: pytest.MonkeyPatch) -> list[ssl.SSLContext]:
    """Return the list of TLS contexts, which grows with each connection."""
    contexts: list[ssl.SSLContext] = []

    def wrap_socket(context: ssl.SSLContext, plain: PlainSocket, **_: str) -> PlainSocket:
        contexts.append(context)
        return plain

    monkeypatch.setattr(ssl.SSLContext, "wrap_socket", wrap_socket)
    return contexts


def connection(**options: Any) -> Any:
    """Return a connection from our pool."""
    kind: Any = redis.SSLConnection
    pool = redis.ConnectionPool(kind, **options)
    tls.share_contexts(pool)
    return pool.connection_class(**options)


def connect(**options: str) -> None:
    """Run the TLS handshake of one connection."""
    connection(host="localhost", **options)._wrap_socket_with_ssl(PlainSocket())


def test_a_users_ca_replaces_the_systems_cas(
    tls_contexts: list[ssl.SSLContext], tmp_path: Path
) -> None:
    certificate, _ = a_certificate(tmp_path, "redis")
    connect(ssl_ca_certs=str(certificate))

    (context,) = tls_contexts
    assert context.cert_store_stats()["x509"] == 1
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_connections_with_the_same_files_share_a_context_until_a_file_changes(
    tls_contexts: list[ssl.SSLContext], tmp_path: Path
) -> None:
    certificate, key = a_certificate(tmp_path, "redis")
    files = {
        "ssl_ca_certs": str(certificate),
        "ssl_certfile": str(certificate),
        "ssl_keyfile": str(key),
    }
    connect(**files)
    connect(**files)
    certificate, key = a_certificate(tmp_path, "redis")
    os.utime(certificate, ns=(1, 1))
    connect(**files)

    first, second, third = tls_contexts
    assert first is second
    assert third is not first


def test_a_handshake_has_the_connect_timeout_and_later_data_the_answer_timeout(
    tls_contexts: list[ssl.SSLContext],
) -> None:
    plain = PlainSocket()
    made_here = connection(host="localhost", socket_connect_timeout=5, socket_timeout=30)
    made_here._wrap_socket_with_ssl(plain)

    assert plain.timeouts == [5, 30]


def test_a_server_without_tls_fails_within_the_connect_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = dict(zip(("host", "port"), silent.getsockname(), strict=True))
        waiting = connection(**address, socket_connect_timeout=0.2, socket_timeout=MAX_TEST_S)
        since = time.monotonic()
        with pytest.raises(redis.TimeoutError):
            waiting.connect()

    assert time.monotonic() - since < MAX_TEST_S / 2


def test_disabled_checks_are_not_made(tls_contexts: list[ssl.SSLContext]) -> None:
    connect(ssl_cert_reqs="none")

    (context,) = tls_contexts
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)


def test_other_connections_of_the_process_use_redis_pys_contexts(
    tls_contexts: list[ssl.SSLContext], tmp_path: Path
) -> None:
    certificate, _ = a_certificate(tmp_path, "redis")
    kind: Any = redis.SSLConnection
    before = kind._wrap_socket_with_ssl

    connect(ssl_ca_certs=str(certificate))
    for _ in range(2):
        kind(host="localhost", ssl_ca_certs=str(certificate))._wrap_socket_with_ssl(PlainSocket())

    assert kind._wrap_socket_with_ssl is before
    assert len({id(context) for context in tls_contexts}) == 3


@pytest.mark.parametrize("scheme", ["rediss", "sentinel"])
def test_all_tls_connections_of_the_store_share_contexts(scheme: str) -> None:
    url = f"{scheme}://127.0.0.1:1/0" + ("?ssl=true" if scheme == "sentinel" else "")
    app = make_app("test", url, Settings(), [])
    pools = [create_client(url, 1.0, most).connection_pool for most in (None, 3)]
    pools.append(app.backend.client.connection_pool)

    for pool in pools:
        sentinels = getattr(getattr(pool, "sentinel_manager", None), "sentinels", [])
        for each in (pool, *(sentinel.connection_pool for sentinel in sentinels)):
            kind: Any = each.connection_class
            assert kind._wrap_socket_with_ssl is not redis.SSLConnection._wrap_socket_with_ssl
    app.close()
