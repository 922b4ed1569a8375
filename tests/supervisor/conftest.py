"""Fixtures of the supervisor's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.types.names import ROLES_QUEUE, SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.client import Client
from tests.supervisor.shell import SETTINGS, Shell


@pytest.fixture
def jobs(redis_url: str) -> Iterator[Client]:
    connected = client.connect(redis_url, SETTINGS)
    yield connected
    connected.store.connection.close()


@pytest.fixture
def shell(redis_url: str) -> Iterator[Shell]:
    """Yield a supervisor in this process. Three specialists are announced."""
    supervisor = Shell(
        redis_url,
        make_app("test", redis_url, SETTINGS, (SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE, ROLES_QUEUE)),
    )
    supervisor.serve("researcher", "writer", "generalist")
    yield supervisor
    supervisor.close()
