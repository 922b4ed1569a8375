"""Wrong tokens are limited by address, and never stop a valid token."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.api_tokens import AccessLevel
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.async_client import AsyncClient
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.serve.application import make_application
from handoff_queue.supervisor.serve.request_limits import MAX_WRONG_TOKENS
from tests.supervisor.serve.conftest import LOCAL, URL
from tests.supervisor.serve.console.visitor import Visitor

pytestmark = pytest.mark.slow

ADDRESS, OTHER = "203.0.113.7", "203.0.113.8"
WRONG = f"hq_{'0' * 12}_{'A' * 43}"
TRIES = 2 * MAX_WRONG_TOKENS + 1
"""So many tries pass the limit, also if a new minute begins once."""

From = Callable[..., TestClient]


@pytest.fixture
def secret(jobs: Client) -> str:
    _, made = jobs.store.api_tokens.create("a test", AccessLevel.READ, None)
    return made


@pytest.fixture
def sent_from(app: FastAPI, http: TestClient, secret: str) -> From:
    """Return a function that makes a client with an address and a token."""

    def make(address: str, token: str = WRONG, server: FastAPI = app) -> TestClient:
        return TestClient(
            server,
            base_url=URL,
            client=(address, 50_000),
            headers={"Authorization": f"Bearer {token}"},
        )

    return make


def statuses(attacker: TestClient, count: int = TRIES) -> list[int]:
    return [attacker.get("/v1/jobs").status_code for _ in range(count)]


def test_an_address_with_many_wrong_tokens_gets_429_and_the_time_to_wait(sent_from: From) -> None:
    attacker = sent_from(ADDRESS)

    tried = statuses(attacker)
    refused = [attacker.get("/v1/jobs") for _ in range(MAX_WRONG_TOKENS + 1)][-1]

    assert tried[:MAX_WRONG_TOKENS] == [401] * MAX_WRONG_TOKENS
    assert 429 in tried
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["type"].endswith("#too-many-requests")
    assert 0 < int(refused.headers["retry-after"]) <= 61


def test_a_valid_token_of_the_same_address_still_works(
    sent_from: From, app: FastAPI, secret: str
) -> None:
    statuses(sent_from(ADDRESS))

    assert sent_from(ADDRESS, secret).get("/v1/jobs").status_code == 200
    assert Visitor(app, ADDRESS).log_in(secret).status_code == 303


def test_another_address_is_not_limited(sent_from: From) -> None:
    statuses(sent_from(ADDRESS))

    assert statuses(sent_from(OTHER), 1) == [401]


def test_a_client_cannot_change_its_ipv6_address_to_get_more_tries(sent_from: From) -> None:
    tried = [
        sent_from(f"2001:db8::{number:x}").get("/v1/jobs").status_code for number in range(TRIES)
    ]

    assert 429 in tried
    assert statuses(sent_from("2001:db8:0:1::1"), 1) == [401]


def test_two_ipv4_clients_of_a_server_for_ipv6_are_two_addresses(sent_from: From) -> None:
    tried = statuses(sent_from(f"::ffff:{ADDRESS}"))

    assert 429 in tried
    assert statuses(sent_from(f"::ffff:{OTHER}"), 1) == [401]


def test_replicas_share_the_count(sent_from: From, redis_url: str, settings: Settings) -> None:
    jobs = client.connect(redis_url, settings)
    replica = make_application(AsyncClient(jobs), settings)
    with TestClient(replica, base_url=URL, client=LOCAL):
        tried = statuses(sent_from(ADDRESS, server=replica))
        refused = statuses(sent_from(ADDRESS))
    jobs.store.connection.close()

    assert 429 in tried
    assert 429 in refused[:MAX_WRONG_TOKENS]


def test_a_request_without_a_token_is_not_a_wrong_token(app: FastAPI, sent_from: From) -> None:
    with_none = TestClient(app, base_url=URL, client=(ADDRESS, 50_000))

    assert set(statuses(with_none)) == {401}
    assert statuses(sent_from(ADDRESS), 1) == [401]


def test_the_login_of_the_console_is_limited_too(app: FastAPI, sent_from: From) -> None:
    visitor = Visitor(app, ADDRESS)
    csrf = visitor.csrf("/login")

    tried = [visitor.post("/login", csrf, token="wrong") for _ in range(TRIES)]

    refused = [response for response in tried if response.status_code == 429]
    assert tried[0].status_code == 401
    assert "A valid token still works" in refused[0].text
    assert refused[0].headers["retry-after"]


def test_a_cookie_with_a_wrong_token_counts(app: FastAPI, sent_from: From) -> None:
    visitor = Visitor(app, ADDRESS)
    visitor.http.cookies["handoff_token"] = WRONG

    tried = [visitor.get("/").status_code for _ in range(TRIES)]

    assert tried[0] == 303
    assert 429 in tried
    assert visitor.get("/login").status_code == 200


def test_mcp_is_limited_too(sent_from: From) -> None:
    attacker = sent_from(ADDRESS)

    tried = [attacker.post("/mcp", json={}).status_code for _ in range(TRIES)]

    assert tried[0] == 401
    assert 429 in tried
