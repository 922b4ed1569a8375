"""The user of the HTTP API in a chaos run goes on at the other server while one is dead."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from handoff_queue.chaos.api_user import ApiUser
from handoff_queue.shared.settings.ports import find_free_port
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.api_tokens import AccessLevel
from handoff_queue.supervisor.client.async_client import AsyncClient
from handoff_queue.supervisor.client.client import Client, connect
from handoff_queue.supervisor.client.request import Request
from handoff_queue.supervisor.serve.application import make_application
from tests.doubles.jobs import a_job
from tests.supervisor.serve.serving import serving
from tests.supervisor.serve.test_job_routes import end


@pytest.fixture
def jobs(redis_url: str) -> Iterator[Client]:
    connected = connect(redis_url, Settings(offline=True))
    yield connected
    connected.store.connection.close()


@pytest.fixture
def user(jobs: Client) -> Iterator[ApiUser]:
    """Yield a user of two servers. No process listens at the first address."""
    _, secret = jobs.create_token("a test", AccessLevel.OPERATE)
    with serving(make_application(AsyncClient(jobs), jobs.settings)) as url:
        made = ApiUser([f"http://127.0.0.1:{find_free_port()}", url], secret)
        yield made
        made.close()


def test_the_user_sends_a_request_again_to_the_other_server(user: ApiUser, jobs: Client) -> None:
    request = Request("How does HNSW work?", idempotency_key="once")

    first = user.send("POST", "/v1/jobs", {"text": request.text}, key="once")
    second = user.send("POST", "/v1/jobs", {"text": request.text}, key="once")

    assert first is None
    assert second is not None
    assert second.status == 202
    assert (user.unanswered, user.taken_over, len(user.answered)) == (1, 1, 1)
    assert len(jobs.newest()) == 1


def test_a_follower_connects_to_the_other_server(user: ApiUser, jobs: Client) -> None:
    job_id = a_job(jobs.store)
    end(jobs, job_id)

    follower = user.follow(job_id)
    follower.join(30)

    assert [version for version, _ in follower.seen] == [1, 2]
    assert not follower.is_alive()
