"""Clients that read no response, or end no request. They use up neither the memory nor the threads
nor the open files of a server.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import httpx2
import pytest
from fastapi import FastAPI

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.api_tokens import AccessLevel
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.serve import request_limits, server, slow_clients
from handoff_queue.supervisor.serve.request_limits import MAX_REQUESTS
from tests.doubles.jobs import a_job
from tests.supervisor.serve.serving import serving
from tests.waiting import MAX_WAIT_S, wait_until

pytestmark = pytest.mark.slow

LARGE = 8_000_000
"""Bytes of a response: more than the kernel keeps for a client that reads nothing."""


@pytest.fixture
def settings() -> Settings:
    return Settings(offline=True)


@pytest.fixture
def url(app: FastAPI) -> Iterator[str]:
    with serving(app) as served:
        yield served


@pytest.fixture
def exported(jobs: Client) -> JobId:
    """A job of tenant `a` whose export is large."""
    document = b"The price of one item is five euros.\n" * (LARGE // 74)
    documents = {"a.md": document, "b.md": document + b"The end.\n"}
    return jobs.submit(Request("Look.", tenant="a", mode=Mode.SINGLE, documents=documents))


def token_of(jobs: Client, tenant: str) -> str:
    _, secret = jobs.store.api_tokens.create("a test", AccessLevel.READ, tenant)
    return secret


def connected(url: str) -> socket.socket:
    """Return a connection that takes few bytes before its client reads them."""
    host, _, port = url.removeprefix("http://").partition(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    connection.settimeout(MAX_WAIT_S)
    connection.connect((host, int(port)))
    return connection


def ask(connection: socket.socket, path: str, token: str) -> None:
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
    connection.sendall(head.encode())


def is_closed(connection: socket.socket) -> bool:
    """Read to the end. Return whether the server has closed the connection."""
    try:
        while connection.recv(1_000_000):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def test_unread_responses_of_a_token_hold_up_only_requests_of_this_token(
    jobs: Client, url: str, exported: JobId
) -> None:
    token, other = token_of(jobs, "a"), token_of(jobs, "b")
    path = f"/v1/jobs/{exported}/export?texts=true"
    with ExitStack() as held:
        for _ in range(MAX_REQUESTS):
            connection = held.enter_context(connected(url))
            ask(connection, path, token)
            assert connection.recv(12) == b"HTTP/1.1 200"
        waiting = held.enter_context(connected(url))
        ask(waiting, "/v1/jobs?limit=1", token)
        headers = {"Authorization": f"Bearer {other}"}
        assert httpx2.get(f"{url}/v1/jobs", headers=headers, timeout=MAX_WAIT_S).status_code == 200
        waiting.settimeout(0.5)
        with pytest.raises(TimeoutError):
            waiting.recv(12)
        connection.close()
        waiting.settimeout(MAX_WAIT_S)
        assert waiting.recv(12) == b"HTTP/1.1 200"


def test_unread_responses_end_and_the_next_request_of_the_token_gets_its_turn(
    jobs: Client, url: str, exported: JobId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_clients, "SLOW_S", 0.5)
    token = token_of(jobs, "a")
    with ExitStack() as held:
        for _ in range(MAX_REQUESTS):
            connection = held.enter_context(connected(url))
            ask(connection, f"/v1/jobs/{exported}/export?texts=true", token)
            assert connection.recv(12) == b"HTTP/1.1 200"
        headers = {"Authorization": f"Bearer {token}"}
        answer = httpx2.get(f"{url}/v1/jobs?limit=1", headers=headers, timeout=MAX_WAIT_S)
        assert answer.status_code == 200


def test_a_client_that_reads_slowly_gets_the_whole_response(
    jobs: Client, url: str, exported: JobId, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel takes the next piece when the client has read megabytes of the earlier ones."""
    monkeypatch.setattr(slow_clients, "SLOW_S", 1.0)
    monkeypatch.setattr(server, "_TICKS_A_SECOND", 1)
    token = token_of(jobs, "a")
    received = 0
    with connected(url) as connection:
        ask(connection, f"/v1/jobs/{exported}/export?texts=true", token)
        slow_until = time.monotonic() + 4 * slow_clients.SLOW_S

        def is_read_slowly() -> bool:
            nonlocal received
            received += len(connection.recv(4_096))
            return time.monotonic() > slow_until

        wait_until(is_read_slowly)
        while received < LARGE * 0.9:
            part = connection.recv(1_000_000)
            assert part, f"{received:,} bytes"
            received += len(part)


def test_a_large_response_arrives_whole(jobs: Client, url: str, exported: JobId) -> None:
    headers = {"Authorization": f"Bearer {token_of(jobs, 'a')}"}
    path = f"{url}/v1/jobs/{exported}/export?texts=true"
    answer = httpx2.get(path, headers=headers, timeout=MAX_WAIT_S)
    assert len(answer.content) > LARGE * 0.9
    assert answer.json()["job"]["job_id"] == exported


def test_a_body_that_does_not_arrive_gets_status_408(
    jobs: Client, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_limits, "BODY_S", 0.5)
    _, token = jobs.store.api_tokens.create("a test", AccessLevel.SUBMIT, "a")
    with connected(url) as connection:
        head = f"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        connection.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        assert connection.recv(12) == b"HTTP/1.1 408"


def test_requests_that_wait_for_a_job_hold_up_no_other(jobs: Client, url: str) -> None:
    job_id = a_job(jobs.store, "a")
    token = token_of(jobs, "a")
    headers = {"Authorization": f"Bearer {token}"}
    with ExitStack() as held:
        for _ in range(MAX_REQUESTS):
            waiting = held.enter_context(connected(url))
            ask(waiting, f"/v1/jobs/{job_id}/result?wait_s=60", token)
        answer = httpx2.get(f"{url}/v1/jobs", headers=headers, timeout=MAX_WAIT_S)
        assert answer.status_code == 200


@pytest.mark.parametrize("head", ["", "GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\nX"])
def test_a_connection_without_a_whole_request_is_closed(
    head: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_clients, "SLOW_S", 0.5)
    with connected(url) as connection:
        connection.sendall(head.encode())
        assert is_closed(connection)
