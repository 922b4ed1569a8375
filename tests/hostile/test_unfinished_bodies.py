"""Bodies of requests that end early. The server accepts no part of such a body."""

from __future__ import annotations

import logging
import socket
from urllib.parse import urlsplit

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from handoff_queue.shared.store.keys import PREFIX
from handoff_queue.supervisor.client.client import Client
from tests.supervisor.serve.console.visitor import Visitor
from tests.supervisor.serve.serving import serving

pytestmark = pytest.mark.slow

REQUEST = '--b\r\nContent-Disposition: form-data; name="request"\r\n\r\n{"text": "Summarise."}\r\n'
DOCUMENT = (
    '--b\r\nContent-Disposition: form-data; name="documents"; filename="a.md"\r\n\r\n'
    "The end of a form can look like --b--\r\n"
)
FORM = f"{REQUEST}{DOCUMENT}--b--\r\n"
IN_THE_DOCUMENT = FORM.index("--b--") + len("--b--")
CUTS = {
    "in the header of a part": 20,
    "after the first part": len(REQUEST),
    "in the header of a document": len(REQUEST) + 30,
    "after a text like the boundary": IN_THE_DOCUMENT,
    "in the boundary": len(FORM) - 6,
    "before the last dash": len(FORM) - 3,
}
CALL = '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "submit", \
"arguments": {"text": "Summarise."}}}'
BODIES = {
    "JSON": ("/v1/jobs", "application/json", '{"text": "Summarise."}'),
    "a form": ("/v1/jobs", "multipart/form-data; boundary=b", FORM),
    "a call over MCP": ("/mcp", "application/json", CALL),
}


def stored(jobs: Client) -> set[bytes]:
    """Return the keys of Redis without the counts of requests."""
    names = set(jobs.store.connection.redis.keys())
    return {name for name in names if not name.startswith(f"{PREFIX}requests:".encode())}


@pytest.mark.parametrize("length", CUTS.values(), ids=CUTS)
def test_a_form_without_its_closing_boundary_stores_nothing(
    http: TestClient, jobs: Client, length: int
) -> None:
    before = stored(jobs)

    answer = http.post(
        "/v1/jobs",
        content=FORM[:length],
        headers={"Content-Type": 'multipart/form-data; boundary="b"'},
    )

    assert answer.status_code == 400
    assert answer.json()["detail"] == "the form ends before its closing boundary: send it again"
    assert stored(jobs) == before


@pytest.mark.parametrize("behind", ["\r\n", "", "\n", "\r\n\r\n", " \t\r\n", "\r\n" * 32])
@pytest.mark.parametrize("piece", [1, 1_000])
def test_white_space_may_follow_the_closing_boundary(
    http: TestClient, jobs: Client, behind: str, piece: int
) -> None:
    body = (FORM.removesuffix("\r\n") + behind).encode()
    pieces = (body[at : at + piece] for at in range(0, len(body), piece))

    answer = http.post(
        "/v1/jobs",
        content=pieces,
        headers={"Content-Type": "multipart/form-data; boundary=b"},
    )

    assert answer.status_code == 202
    documents = jobs.export(answer.json()["job_id"]).documents
    assert [document.path for document in documents] == ["a.md"]


@pytest.mark.parametrize("behind", ["x", "\r\n--b", f"\r\n{DOCUMENT}--b--x", " " * 65])
def test_other_text_after_the_closing_boundary_is_refused(http: TestClient, behind: str) -> None:
    body = FORM.removesuffix("\r\n") + behind
    form = {"Content-Type": "multipart/form-data; boundary=b"}
    assert http.post("/v1/jobs", content=body, headers=form).status_code == 400


@pytest.mark.parametrize("size", [0, 1, 3_000_000])
def test_forms_of_an_ordinary_client_are_whole(app: FastAPI, jobs: Client, size: int) -> None:
    document = b"\r\n--" * (size // 4) + b"x" * (size % 4)
    with serving(app) as url:
        answer = httpx2.post(
            f"{url}/v1/jobs",
            data={"request": '{"text": "Summarise."}'},
            files=[("documents", ("empty.md", b"")), ("documents", ("a.md", b"A." + document))],
        )
    assert answer.status_code == 202, answer.text
    documents = jobs.export(answer.json()["job_id"]).documents
    assert [document.path for document in documents] == ["a.md"], "an empty file has no text"


def test_an_unfinished_form_of_the_console_submits_no_job(local: Visitor, jobs: Client) -> None:
    field = '--b\r\nContent-Disposition: form-data; name="{}"\r\n\r\n{}\r\n'
    form = field.format("csrf", local.csrf("/new")) + field.format("text", "Summarise.") + DOCUMENT
    headers = {"Content-Type": "multipart/form-data; boundary=b", "Origin": local.url}
    before = stored(jobs)

    unfinished = local.http.post("/new", content=form, headers=headers)
    after = stored(jobs)
    whole = local.http.post("/new", content=f"{form}--b--\r\n", headers=headers)

    assert (unfinished.status_code, after) == (400, before)
    assert "the form ends before its closing boundary" in unfinished.text
    assert whole.status_code == 303


@pytest.mark.slow
@pytest.mark.parametrize("is_chunked", [False, True], ids=["Content-Length", "chunks"])
@pytest.mark.parametrize("kind", BODIES)
def test_a_client_that_leaves_in_the_middle_of_a_body_stores_nothing(
    app: FastAPI, jobs: Client, kind: str, is_chunked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    before = stored(jobs)
    path, media_type, text = BODIES[kind]
    body = text.encode()
    length, sent = f"Content-Length: {len(body)}", body[:-3]
    if is_chunked:  # the last chunk is missing
        length, sent = "Transfer-Encoding: chunked", b"%x\r\n%b\r\n" % (len(body), body)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:8321\r\nContent-Type: {media_type}\r\n"
        f"Accept: application/json, text/event-stream\r\n{length}\r\n\r\n"
    )
    with serving(app) as url:
        address = urlsplit(url)
        with socket.create_connection((address.hostname, address.port)) as connection:
            connection.sendall(head.encode() + sent)
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1_000) == b""
        after = stored(jobs)
        headers = {"Content-Type": media_type, "Accept": "application/json, text/event-stream"}
        httpx2.post(f"{url}{path}", content=body, headers=headers)

    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert errors == []
    assert after == before
    assert stored(jobs) != before, "the whole body submits a job"


def test_a_request_with_two_lengths_is_refused_and_its_rest_is_not_read_as_a_request(
    app: FastAPI,
) -> None:
    request = (
        b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-User: admin\r\n\r\n"
    )
    with serving(app) as url:
        address = urlsplit(url)
        with socket.create_connection((address.hostname, address.port or 0), 30) as connection:
            connection.sendall(request)
            answer = b""
            while piece := connection.recv(65_536):
                answer += piece

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("path", ["/v1/jobs", "/mcp", "/"])
@pytest.mark.parametrize("chunk", [b"ZZZ\r\n", b"5\r\nabcdeXX", b"-1\r\n"])
def test_a_body_that_is_not_http_leaves_no_traceback_in_the_log(
    app: FastAPI, path: str, chunk: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise a client without a token fills the log: 3,000 bytes for each request."""
    with serving(app) as url:
        address = urlsplit(url)
        with socket.create_connection((address.hostname, address.port), timeout=60) as client:
            head = f"POST {path} HTTP/1.1\r\nHost: {address.netloc}\r\nTransfer-Encoding: chunked"
            client.sendall(head.encode() + b"\r\n\r\n" + chunk)
            answer = client.recv(65_536)

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert not [record for record in caplog.records if record.exc_info]
