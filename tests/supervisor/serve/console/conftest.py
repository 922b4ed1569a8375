"""Fixtures of the console: users with a token."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from handoff_queue.shared.types.api_tokens import AccessLevel
from handoff_queue.supervisor.client.client import Client
from tests.supervisor.serve.console.visitor import Visitor

VisitorOf = Callable[..., Visitor]


@pytest.fixture
def visitor_with(app: FastAPI, jobs: Client, http: TestClient) -> VisitorOf:
    """Return a function that logs a user in with a new token of an access level and a tenant."""

    def make(access: str = "operate", tenant: str | None = None) -> Visitor:
        _, secret = jobs.store.api_tokens.create("a test", AccessLevel(access), tenant)
        visitor = Visitor(app)
        assert visitor.log_in(secret).status_code == 303
        return visitor

    return make


@pytest.fixture
def local(app: FastAPI, http: TestClient) -> Visitor:
    """A user of this machine, without a token."""
    return Visitor(app, "127.0.0.1")
