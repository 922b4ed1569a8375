"""A token cannot use up the open files of a server with streams that it never closes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack

import httpx2
import pytest
from fastapi import FastAPI
from mcp import MCPError

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.api_tokens import AccessLevel
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.serve.authentication import AppState
from tests.doubles.jobs import a_job
from tests.mcp_client import connected, listen_until_the_end
from tests.supervisor.serve.serving import serving
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

Opened = Callable[[str], AbstractContextManager[httpx2.Response]]


@pytest.fixture
def settings() -> Settings:
    return Settings(offline=True, serve_streams=2)


@pytest.fixture
def url(app: FastAPI) -> Iterator[str]:
    with serving(app) as served:
        yield served


def opened_by(jobs: Client, url: str, tenant: str) -> Opened:
    """Return a function that opens a stream of a resource with a new token."""
    _, secret = jobs.store.api_tokens.create("a test", AccessLevel.READ, tenant)
    headers = {"Authorization": f"Bearer {secret}"}
    return lambda path: httpx2.stream("GET", f"{url}/v1/jobs/{path}", headers=headers)


def test_a_token_with_all_its_streams_gets_no_other_and_other_tokens_do(
    jobs: Client, url: str
) -> None:
    of_a, of_b = a_job(jobs.store, "a"), a_job(jobs.store, "b")
    open_a, open_b = opened_by(jobs, url, "a"), opened_by(jobs, url, "b")
    with ExitStack() as held:
        statuses: list[int] = []
        for path in (f"{of_a}/events", f"{of_a}/answer", f"{of_a}/events"):
            statuses.append(held.enter_context(open_a(path)).status_code)
        other = held.enter_context(open_b(f"{of_b}/events")).status_code

    assert (statuses, other) == ([200, 200, 429], 200)


def test_a_stream_that_its_client_has_closed_does_not_count(
    app: FastAPI, jobs: Client, url: str
) -> None:
    job_id = a_job(jobs.store, "a")
    opened = opened_by(jobs, url, "a")
    served: AppState = app.state.handoff_queue
    for _ in range(3):
        with opened(f"{job_id}/events") as first, opened(f"{job_id}/events") as second:
            assert (first.status_code, second.status_code) == (200, 200)
        wait_until(lambda: not served.streams._stream_counts, expected="the end of both streams")


def test_a_client_of_mcp_with_all_its_streams_cannot_listen(jobs: Client, url: str) -> None:
    job_id = a_job(jobs.store, "a")
    opened = opened_by(jobs, url, "a")
    with opened(f"{job_id}/events") as first, opened(f"{job_id}/events") as second:
        assert (first.status_code, second.status_code) == (200, 200)
        token = first.request.headers["authorization"].removeprefix("Bearer ")

        async def listen() -> None:
            async with connected(url, token) as client:
                with pytest.raises(MCPError, match="2 streams are open"):
                    await listen_until_the_end(client.session, taskIds=[job_id])

        asyncio.run(asyncio.wait_for(listen(), 30))
