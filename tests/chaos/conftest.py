"""Fixtures of the chaos runs."""

from __future__ import annotations

import pytest

from handoff_queue.shared.local.fork_server import ForkServer
from tests import forked_processes


@pytest.fixture
def fork_server(monkeypatch: pytest.MonkeyPatch) -> ForkServer | None:
    """Return the fork server of this test process, and let its forks import `benchmarks`.

    Return None if the platform has no fork server.
    """
    monkeypatch.setenv("PYTHONPATH", str(forked_processes.ROOT))
    return forked_processes.shared_fork_server()
