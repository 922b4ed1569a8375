"""Fixtures of the end-to-end tests. Most tests share one fleet of real processes, whose dead
processes are restarted before each test.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.commands import DOCUMENTS, REQUEST, Handoff, HandoffInProcess
from tests.e2e.fleet import Fleet
from tests.e2e.fleets import start_fleet
from tests.running_system import RunningSystem, running_system
from tests.system_users import refused_commands
from tests.waiting import wait_until


@pytest.fixture(scope="package")
def running_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Yield the fleet that all end-to-end tests of a test process share.

    It ends with these tests, because its idle processes take 3 % of a core.
    """
    with start_fleet(tmp_path_factory.mktemp("fleet")) as running:
        yield running


@pytest.fixture
def fleet(running_fleet: Fleet) -> Iterator[Fleet]:
    """Yield the shared fleet when all its processes run. Fail if the test leaves one of our keys
    without an expiry, or if Redis refused a command.
    """
    wait_until(running_fleet.is_complete, timeout_s=60, expected="the fleet")
    yield running_fleet
    running_fleet.model.release_all()
    assert running_fleet.keys_without_expiry == []
    assert refused_commands(running_fleet.redis) == []


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSystem]:
    with running_system(tmp_path_factory.mktemp("system")) as running:
        yield running


@pytest.fixture
def handoff(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Handoff:
    """Return the command. `run` runs it in the test process, and `started` in another process."""
    return HandoffInProcess(tmp_path, capture=capfd)


@pytest.fixture(scope="module")
def job_id(system: RunningSystem, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the id of a job that has ended successfully."""
    completed = Handoff(tmp_path_factory.mktemp("job")).run(
        "run", REQUEST, "--docs", str(DOCUMENTS), "--json", HANDOFF_REDIS_URL=system.redis_url
    )
    identifier: str = json.loads(completed.stdout)["job_id"]
    return identifier
