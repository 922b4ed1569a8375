"""What tests of the supervisor share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shared import failpoints
from shared.config import Settings
from supervisor import client
from supervisor.client import Client


@pytest.fixture
def jobs(redis_url: str) -> Iterator[Client]:
    made = client.connect(redis_url, Settings(offline=True))
    yield made
    made.ledger.connection.close()


@pytest.fixture
def armed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where failpoints of this process are armed."""
    monkeypatch.setenv(failpoints.FAILPOINTS, str(tmp_path))
    failpoints.folder.cache_clear()
    yield tmp_path
    failpoints.folder.cache_clear()
