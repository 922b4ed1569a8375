"""What tests of the supervisor share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.names import ROLES_QUEUE, SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.client import Client
from tests.supervisor.shell import SETTINGS, Shell


@pytest.fixture
def jobs(redis_url: str) -> Iterator[Client]:
    made = client.connect(redis_url, Settings(offline=True))
    yield made
    made.store.connection.close()


@pytest.fixture
def shell(redis_url: str) -> Iterator[Shell]:
    """A supervisor in this process, and the served specialists."""
    made = Shell(
        redis_url,
        make_app("test", redis_url, SETTINGS, (SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE, ROLES_QUEUE)),
    )
    made.serve("researcher", "writer", "generalist")
    yield made
    made.close()
