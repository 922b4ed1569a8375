"""A token that was revoked while its requests are open. It acts no more, and reads no more."""

from __future__ import annotations

import json
import socket
from concurrent.futures import Future, ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx2
import pytest
from fastapi import FastAPI

from handoff_queue.shared.store.keys import PREFIX
from handoff_queue.shared.types.api_tokens import AccessLevel, ApiToken
from handoff_queue.shared.types.events import CancelRequested
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.serve import authentication
from handoff_queue.supervisor.serve.authentication import AppState
from handoff_queue.supervisor.serve.console.session import (
    BROWSER_COOKIE,
    CSRF_HEADER,
    TOKEN_COOKIE,
    make_csrf_token,
)
from tests.doubles.jobs import a_job
from tests.supervisor.serve.serving import serving
from tests.supervisor.serve.test_job_routes import end
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

JOB = '{"text": "Summarise."}'
BROWSER = "b" * 43
MCP_HEADERS = {
    "Accept": "application/json, text/event-stream",
    "Content-Type": "application/json",
    "MCP-Protocol-Version": "2025-06-18",
}


def call_of(tool: str, **arguments: object) -> str:
    """Return the body of a call of a tool over MCP."""
    params = {"name": tool, "arguments": arguments}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})


BODIES = {
    "JSON": ("/v1/jobs", {"Content-Type": "application/json"}, JOB),
    "a form": (
        "/v1/jobs",
        {"Content-Type": "multipart/form-data; boundary=b"},
        f'--b\r\nContent-Disposition: form-data; name="request"\r\n\r\n{JOB}\r\n--b--\r\n',
    ),
    "MCP": ("/mcp", MCP_HEADERS, call_of("submit", text="Summarise.")),
    "the console": (
        "/new",
        {"Content-Type": "application/x-www-form-urlencoded"},
        "text=Summarise.&specialists=writer",
    ),
}
"""The path, the headers and the body of requests that submit a job."""


@pytest.fixture
def token(jobs: Client, monkeypatch: pytest.MonkeyPatch) -> tuple[ApiToken, str]:
    """A token and its secret. Open requests check it each time."""
    monkeypatch.setattr(authentication, "CHECK_S", 0.0)
    return jobs.store.api_tokens.create("a test", AccessLevel.OPERATE, "acme")


@pytest.mark.parametrize("kind", BODIES)
def test_a_request_acts_no_more_if_its_token_is_revoked_before_the_end_of_its_body(
    app: FastAPI, jobs: Client, token: tuple[ApiToken, str], kind: str
) -> None:
    path, headers, body = BODIES[kind]
    revoked, secret = token
    sent_headers = {
        **headers,
        "Authorization": f"Bearer {secret}",
        "Cookie": f"{TOKEN_COOKIE}={secret}; {BROWSER_COOKIE}={BROWSER}",
        CSRF_HEADER: make_csrf_token(BROWSER, secret),
        "Content-Length": str(len(body)),
    }
    redis = jobs.store.connection.redis
    with serving(app) as url, socket.create_connection(find_place(url), timeout=30) as connection:
        host = url.removeprefix("http://")
        lines = [f"POST {path} HTTP/1.1", f"Host: {host}", f"Origin: {url}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in sent_headers.items()]
        connection.sendall("\r\n".join([*lines, "", body[:10]]).encode())
        wait_until(
            lambda: list(redis.scan_iter(f"{PREFIX}requests:{revoked.id}:*")),
            expected="the request",
        )
        jobs.store.api_tokens.revoke(revoked.id)
        connection.sendall(body[10:].encode())
        answer = b""
        while part := connection.recv(65_536):
            answer += part

    assert answer.startswith(b"HTTP/1.1 401"), answer
    assert jobs.newest() == []


def find_place(url: str) -> tuple[str, int]:
    """Return the address and the port of a server."""
    parts = urlsplit(url)
    return str(parts.hostname), int(parts.port or 0)


@pytest.mark.parametrize("kind", ["result", "result over MCP", "events over MCP"])
def test_a_request_that_waits_for_a_job_reads_nothing_if_its_token_is_revoked(
    app: FastAPI, jobs: Client, token: tuple[ApiToken, str], kind: str
) -> None:
    job_id = a_job(jobs.store, "acme")
    revoked, secret = token
    bearer = {"Authorization": f"Bearer {secret}"}
    served: AppState = app.state.handoff_queue

    def ask(url: str) -> httpx2.Response:
        if kind == "result":
            path = f"/v1/jobs/{job_id}/result?wait_s=30"
            return httpx2.get(url + path, headers=bearer, timeout=60)
        version = jobs.info(job_id).version
        call = call_of("result", job_id=job_id, wait_s=30.0)
        if kind == "events over MCP":
            call = call_of("events", job_id=job_id, wait_s=30.0, after=version)
        return httpx2.post(f"{url}/mcp", content=call, headers=bearer | MCP_HEADERS, timeout=60)

    with serving(app) as url, ThreadPoolExecutor() as pool:
        answer: Future[httpx2.Response] = pool.submit(ask, url)
        wait_until(lambda: served.streams._stream_counts, expected="a request that waits")
        jobs.store.api_tokens.revoke(revoked.id)
        jobs.store.journal.append(job_id, CancelRequested())
        end(jobs, job_id)
        text = answer.result().text

    assert "the token was revoked or has expired" in text
    assert "cancel" not in text
