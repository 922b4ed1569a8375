"""Fixtures of the supervisor's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.client import Client
from tests.supervisor.shell import SETTINGS, Shell, running_shell


@pytest.fixture
def jobs(redis_url: str) -> Iterator[Client]:
    connected = client.connect(redis_url, SETTINGS)
    yield connected
    connected.store.connection.close()


@pytest.fixture
def shell(redis_url: str) -> Iterator[Shell]:
    """Yield a supervisor in this process. Three specialists are announced."""
    with running_shell(redis_url, "researcher", "writer", "generalist") as supervisor:
        yield supervisor
