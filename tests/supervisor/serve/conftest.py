"""Fixtures of the HTTP API: the application on a real Redis, and clients with tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.api_tokens import AccessLevel
from handoff_queue.supervisor.client.async_client import AsyncClient
from handoff_queue.supervisor.client.client import Client
from handoff_queue.supervisor.serve.application import (
    attach_client,
    make_application,
    make_routes,
)

LOCAL = ("127.0.0.1", 50_000)
"""Address and port of a client on this machine."""
URL = "http://127.0.0.1:8321"

_SETTINGS = Settings(offline=True)  # Made once, because Settings reads many files and variables.

ClientOf = Callable[..., TestClient]


@pytest.fixture
def settings() -> Settings:
    return _SETTINGS


@pytest.fixture(scope="session")
def routes() -> FastAPI:
    """The application without a client. Tests share the routes, because they are slow to make."""
    return make_routes(_SETTINGS)


@pytest.fixture
def app(jobs: Client, settings: Settings, routes: FastAPI) -> FastAPI:
    """The application, as on a loopback address. `jobs` is its client."""
    if settings.serve_max_body_bytes != _SETTINGS.serve_max_body_bytes:  # it is part of the routes
        return make_application(AsyncClient(jobs), settings)
    attach_client(routes, AsyncClient(jobs), settings)
    return routes


@pytest.fixture
def http(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """A client of this machine, without a token. The requests of other clients run in the event
    loop of this client: otherwise each request starts a thread and an event loop.
    """
    with TestClient(app, base_url=URL, client=LOCAL, raise_server_exceptions=False) as client:
        monkeypatch.setattr(TestClient, "portal", client.portal)
        yield client


@pytest.fixture
def client_with(app: FastAPI, jobs: Client, http: TestClient) -> ClientOf:
    """Return a function that makes a client with a new token of an access level and a tenant."""

    def make(access: str = "operate", tenant: str | None = None) -> TestClient:
        _, secret = jobs.store.api_tokens.create("a test", AccessLevel(access), tenant)
        return TestClient(
            app,
            base_url=URL,
            client=("203.0.113.7", 50_000),
            headers={"Authorization": f"Bearer {secret}"},
            raise_server_exceptions=False,
        )

    return make
