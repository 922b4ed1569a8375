"""The whole system runs over TLS with client certificates, and wrong certificates are reported."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import which

import pytest

from handoff_queue.shared.local.child_process_restarts import ChildSpec, Processes
from handoff_queue.shared.local.redis_server import PrivateRedis, reuse_access
from handoff_queue.shared.store.redis.connection import Connection
from handoff_queue.shared.types.errors import HandoffError
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.supervisor.client.request import Request
from tests import forked_processes
from tests.doubles.tls_proxy import HOST, a_certificate
from tests.running_system import DOCUMENTS, ROOT, system_on

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(which("openssl") is None, reason="openssl makes the certificates"),
]
UrlWith = Callable[..., str]


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    fork_server = forked_processes.shared_fork_server()
    with Processes(tmp_path_factory.mktemp("tls"), fork_server) as children:
        yield children


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def url_with(processes: Processes, folder: Path) -> UrlWith:
    """Return a function that makes the URL of a Redis behind TLS.

    Its keyword arguments are options of the URL, with names of files in the folder.
    """
    certificate, key = a_certificate(folder, "redis")
    a_certificate(folder, "stranger")
    redis = PrivateRedis(processes, folder, append_only=False)
    redis.start()
    port = reuse_access(None).port
    command = [
        sys.executable,
        "-m",
        "tests.doubles.tls_proxy",
        str(certificate),
        str(key),
        f"{port}:{redis.access.port}",
    ]

    def is_open() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    processes.start(
        ChildSpec("door", command, {"PYTHONPATH": str(ROOT)}, is_ready=is_open, ends_last=True)
    )
    processes.wait_until_ready()

    def url(scheme: str = "rediss", host: str = HOST, **files: str) -> str:
        options = "&".join(f"{name}={folder / file}" for name, file in files.items())
        return (
            f"{scheme}://:{redis.access.password}@{host}:{port}/0{'?' if options else ''}{options}"
        )

    return url


CLIENT_FILES = {"ssl_certfile": "redis.crt", "ssl_keyfile": "redis.key"}
TRUSTED = {"ssl_ca_certs": "redis.crt", **CLIENT_FILES}


def test_a_job_succeeds_over_tls(processes: Processes, url_with: UrlWith, tmp_path: Path) -> None:
    with system_on(url_with(**TRUSTED), processes, tmp_path) as system:
        jobs = system.jobs()
        result = jobs.result(
            jobs.submit(Request("Compare Qdrant, pgvector and Milvus", documents=DOCUMENTS)),
            wait_s=60,
        )
        jobs.store.connection.close()

    assert result.status is JobStatus.OK
    assert result.citations


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (CLIENT_FILES, "not trusted"),
        ({**CLIENT_FILES, "ssl_ca_certs": "stranger.crt"}, "not trusted"),
        ({**TRUSTED, "host": "127.0.0.1"}, "another host's"),
        ({"ssl_ca_certs": "redis.crt"}, "cannot be reached"),
        (
            {
                "ssl_ca_certs": "redis.crt",
                "ssl_certfile": "stranger.crt",
                "ssl_keyfile": "stranger.key",
            },
            "cannot be reached",
        ),
        ({**TRUSTED, "ssl_ca_certs": "nowhere.crt"}, "ssl_ca_certs cannot be read"),
        ({**TRUSTED, "ssl_ca_certs": "redis.key"}, "holds no certificate"),
        ({**TRUSTED, "ssl_keyfile": "stranger.key"}, "do not belong together"),
        ({"scheme": "redis"}, "cannot be reached"),
    ],
)
def test_wrong_tls_settings_are_reported_in_one_line(
    url_with: UrlWith, options: dict[str, str], text: str
) -> None:
    with pytest.raises(HandoffError, match=text) as raised:
        Connection(url_with(**options)).now()

    assert "HANDOFF_REDIS_URL" in str(raised.value)


def test_a_redis_without_tls_differs_from_an_absent_redis(redis_url: str) -> None:
    with pytest.raises(HandoffError, match="does not use TLS"):
        Connection(redis_url.replace("redis://", "rediss://"), timeout_s=0.5).now()
