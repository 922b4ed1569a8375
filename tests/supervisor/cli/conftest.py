from __future__ import annotations

import pytest

from handoff_queue.supervisor.client.client import Client


@pytest.fixture
def broker(jobs: Client, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Client:
    """Return the client of a test. Commands use the same broker."""
    monkeypatch.setenv("HANDOFF_REDIS_URL", redis_url)
    return jobs
