"""Limits of the size of a body and of the requests in a minute."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import partial
from urllib.parse import urlsplit

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.async_client import AsyncClient
from handoff_queue.supervisor.serve import request_limits
from handoff_queue.supervisor.serve.application import make_application
from tests.supervisor.serve.conftest import LOCAL, URL, ClientOf
from tests.supervisor.serve.serving import serving

REQUESTS = 3


@pytest.fixture
def settings() -> Settings:
    return Settings(offline=True, serve_max_body_bytes=1_000, serve_requests_per_minute=REQUESTS)


def chunks(count: int) -> Iterator[bytes]:
    yield b'{"text": "'
    for _ in range(count):
        yield b"a" * 100
    yield b'"}'


def test_a_body_that_is_too_large_is_refused_by_its_length(http: TestClient) -> None:
    answer = http.post("/v1/jobs", json={"text": "a" * 1_000})

    assert answer.status_code == 413
    assert "1,000 bytes" in answer.json()["detail"]


def test_a_body_without_a_length_is_counted_while_it_arrives(http: TestClient) -> None:
    json = {"Content-Type": "application/json"}

    small = http.post("/v1/jobs", content=chunks(5), headers=json)
    large = http.post("/v1/jobs", content=chunks(20), headers=json)

    assert (small.status_code, large.status_code) == (202, 413)


@pytest.mark.parametrize("path", ["/v1/jobs", "/mcp"])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_client_that_sends_a_refused_body_to_its_end_reads_the_whole_refusal(
    app: FastAPI, path: str, *, is_chunked: bool
) -> None:
    """A connection that is closed before its body is read is reset. The client may then lose the
    response.
    """
    body = b" " * 2_000_000
    headers = f"Content-Type: application/json\r\nContent-Length: {len(body)}"
    if is_chunked:
        headers = "Content-Type: application/json\r\nTransfer-Encoding: chunked"
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    with serving(app) as url:
        address = urlsplit(url)
        with socket.create_connection((address.hostname, address.port), timeout=60) as client:
            head = f"POST {path} HTTP/1.1\r\nHost: {address.netloc}\r\n{headers}\r\n\r\n"
            client.sendall(head.encode())
            client.sendall(body)
            answer = b"".join(iter(partial(client.recv, 65_536), b""))

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert answer.endswith(b"}")


def test_a_client_that_sends_a_refused_body_without_end_loses_its_connection(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_limits, "DRAIN_S", 0.1)
    with serving(app) as url:
        address = urlsplit(url)
        with socket.create_connection((address.hostname, address.port), timeout=60) as client:
            head = f"POST /v1/jobs HTTP/1.1\r\nHost: {address.netloc}\r\n"
            client.sendall(f"{head}Content-Length: 2000000\r\n\r\n".encode())
            answer = b"".join(iter(partial(client.recv, 65_536), b""))

    assert answer.startswith(b"HTTP/1.1 413 ")


def test_a_form_that_is_too_large_is_refused(http: TestClient) -> None:
    job, document = {"request": '{"text": "a"}'}, {"documents": ("a.md", b"a" * 2_000)}

    assert http.post("/v1/jobs", data=job, files=document).status_code == 413


def test_a_token_has_its_own_count_which_replicas_share(
    client_with: ClientOf, redis_url: str, settings: Settings
) -> None:
    reader, other = client_with("read"), client_with("read")
    jobs = client.connect(redis_url, settings)
    replica: FastAPI = make_application(AsyncClient(jobs), settings)
    with TestClient(replica, base_url=URL, client=LOCAL, headers=dict(reader.headers)) as second:
        statuses = [
            (reader if turn % 2 else second).get("/v1/jobs").status_code
            for turn in range(2 * REQUESTS + 1)  # a new minute may begin once
        ]
        refused = [reader.get("/v1/jobs") for _ in range(2)][-1]
    jobs.store.connection.close()

    assert statuses[:REQUESTS] == [200] * REQUESTS
    assert statuses[-1] == 429
    assert 0 < int(refused.headers["retry-after"]) <= 61
    assert other.get("/v1/jobs").status_code == 200
