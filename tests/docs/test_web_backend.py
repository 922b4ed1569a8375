"""The service of docs/how-to/web-backend.md runs against a real Redis, and answers its commands."""

from __future__ import annotations

import asyncio
import shlex
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn

from handoff_queue.shared.settings.ports import find_free_port
from handoff_queue.shared.store.store import Store
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client.async_client import HEARTBEAT_S, MAX_THREADS
from handoff_queue.supervisor.client.journal_follower import RECONNECT_FOR_S
from tests.docs.pages import blocks, coded, rows, sections, text_of
from tests.docs.samples import calls, commands
from tests.doubles.jobs import a_job
from tests.waiting import wait_until

PAGE = text_of("how-to/web-backend")
FOLLOWERS = 200
JOB = "j-k5tq2wbz7x3mhd4n"
"""The job of the page's commands."""
ADDRESS = "http://127.0.0.1:8000"


@pytest.fixture
def backend(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[dict[str, Any]]:
    """The web backend of the page, as a real server on loopback; `url` is its address."""
    monkeypatch.setenv("HANDOFF_REDIS_URL", redis_url)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("Order A-1042 was shipped.")
    names = app_of_page()
    with serving(names["app"]) as url:
        yield names | {"url": url}


def app_of_page() -> dict[str, Any]:
    """Return the names of the program of the page."""
    (program,) = blocks(PAGE, "python")
    names: dict[str, Any] = {"__name__": "backend"}
    exec(compile(program, "docs/how-to/web-backend.md", "exec"), names)
    return names


@contextmanager
def serving(app: Any) -> Iterator[str]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1_000)
        port = listening.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="on"))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        wait_until(lambda: server.started, expected="the web server")
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.mark.slow
def test_a_backend_submits_a_job_once_and_answers_for_it(backend: dict[str, Any]) -> None:
    order = {"question": "Where is order A-1042?", "user": "u1", "order": "form-7"}
    with httpx2.Client(base_url=backend["url"]) as http:
        job_id = http.post("/jobs", params=order).json()["job_id"]
        again = http.post("/jobs", params=order).json()["job_id"]
        state = http.get(f"/jobs/{job_id}").json()
        unknown = http.get("/jobs/j-000000000000/events")
        not_waiting = http.post(f"/jobs/{job_id}/approve")

    assert again == job_id
    assert state == {"status": "queued", "answer": None}
    assert (unknown.status_code, not_waiting.status_code) == (404, 400)


@pytest.mark.slow
def test_each_error_has_the_status_that_the_page_names(backend: dict[str, Any]) -> None:
    order = {"question": "Where is order A-1042?", "user": "u1", "order": "form-7"}
    with httpx2.Client(base_url=backend["url"]) as http:
        http.post("/jobs", params=order)
        conflict = http.post("/jobs", params=order | {"question": "When does it come?"})

    assert conflict.status_code == 409
    assert {kind.__name__: status for kind, status in backend["STATUSES"].items()} == {
        coded(error): int(status)
        for error, status, _ in rows(sections(PAGE)["Errors"])
        if coded(error) != "InvalidDocuments"  # a `UserError` with the same status
    }


@pytest.mark.slow
def test_the_backend_answers_with_status_503_without_redis(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HANDOFF_REDIS_URL", f"redis://127.0.0.1:{find_free_port()}/0")
    with serving(app_of_page()["app"]) as url, httpx2.Client(base_url=url, timeout=60) as http:
        answer = http.get(f"/jobs/{JOB}")

    assert answer.status_code == 503
    assert "Redis" in answer.json()["detail"]


@pytest.mark.slow
def test_200_followers_of_quiet_jobs_do_not_hold_up_the_backend(
    backend: dict[str, Any], store: Store
) -> None:
    job_ids = [a_job(store) for _ in range(FOLLOWERS)]
    threads_before = threading.active_count()

    statuses, threads, streams = asyncio.run(_followed(backend["url"], job_ids))

    assert statuses == [200] * len(job_ids)
    assert (
        threads - threads_before < 40
    )  # the pools of the client and of asyncio, for any number of followers
    assert all(b"event: job_submitted" in text for text in streams)
    assert all(b"event: cancel_requested" in text for text in streams)


async def _followed(url: str, job_ids: Sequence[JobId]) -> tuple[list[int], int, Sequence[bytes]]:
    """Follow each job over a separate connection, and cancel all jobs during that."""
    followers = [await _stream(url, job_id) for job_id in job_ids]
    for reader, _ in followers:
        await reader.readuntil(b"event: job_submitted")
    threads = threading.active_count()
    async with httpx2.AsyncClient(base_url=url) as http:
        statuses = [(await http.post(f"/jobs/{job_id}/cancel")).status_code for job_id in job_ids]
    streams = [
        b"event: job_submitted" + await reader.readuntil(b"event: cancel_requested")
        for reader, _ in followers
    ]
    for _, writer in followers:
        writer.close()
    return statuses, threads, streams


async def _stream(url: str, job_id: JobId) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET /jobs/{job_id}/events HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    await writer.drain()
    return reader, writer


def requests_of_the_page() -> list[tuple[str, str]]:
    """Return the method and the path of each curl command, in order."""
    typed = [command for block in blocks(PAGE, "console") for command in commands(block)]
    arguments = [shlex.split(command)[1:] for command in typed if command.startswith("curl ")]
    return [
        ("POST" if "POST" in words else "GET", words[-1].removeprefix(ADDRESS))
        for words in arguments
    ]


@pytest.mark.slow
def test_the_service_answers_the_commands_of_the_page(backend: dict[str, Any]) -> None:
    submit, follow, answer = requests_of_the_page()
    with httpx2.Client(base_url=backend["url"]) as http:
        job_id = http.request(*submit).json()["job_id"]
        http.post(f"/jobs/{job_id}/cancel")
        with http.stream(follow[0], follow[1].replace(JOB, job_id)) as stream:
            first = [line for line, _ in zip(stream.iter_lines(), range(2), strict=False)]
        state = http.request(answer[0], answer[1].replace(JOB, job_id)).json()

    assert first == ["id: 1", "event: job_submitted"]
    assert set(state) == {"status", "answer"}


def test_the_page_starts_the_app_of_its_program() -> None:
    (program,) = blocks(PAGE, "python")
    started = [
        words[1]
        for block in blocks(PAGE, "console")
        for command in commands(block)
        for words in calls(command)
        if words[0] == "uvicorn"
    ]

    assert started == ["backend:app"]
    assert "\napp = FastAPI(" in program
    assert "`backend.py`" in PAGE


def test_the_page_names_the_figures_of_the_client() -> None:
    assert f"silent for {HEARTBEAT_S:g} seconds" in PAGE
    assert f"within {RECONNECT_FOR_S:g} seconds" in PAGE
    assert f"a pool of {MAX_THREADS} threads" in PAGE
