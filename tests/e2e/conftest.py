"""One fleet of real processes that most tests of this folder share. Dead processes are restarted
before each test.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.commands import DOCUMENTS, REQUEST, Handoff
from tests.e2e.fleet import Fleet
from tests.e2e.fleets import a_fleet
from tests.running_system import RunningSystem, running_system
from tests.waiting import wait_until


@pytest.fixture(scope="session")
def running_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One for all tests of a test process."""
    with a_fleet(tmp_path_factory.mktemp("fleet")) as running:
        yield running


@pytest.fixture
def fleet(running_fleet: Fleet) -> Iterator[Fleet]:
    """The shared fleet with all its processes alive. It must leave no key without an expiry."""
    wait_until(running_fleet.is_whole, timeout_s=60, what="the fleet")
    yield running_fleet
    running_fleet.model.let_go()
    assert running_fleet.kept_for_ever == []


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSystem]:
    with running_system(tmp_path_factory.mktemp("system")) as running:
        yield running


@pytest.fixture
def handoff(tmp_path: Path) -> Handoff:
    return Handoff(tmp_path)


@pytest.fixture(scope="module")
def job_id(system: RunningSystem, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A job that has ended well."""
    done = Handoff(tmp_path_factory.mktemp("job")).run(
        "run", REQUEST, "--docs", str(DOCUMENTS), "--json", HANDOFF_REDIS_URL=system.redis_url
    )
    found: str = json.loads(done.stdout)["job_id"]
    return found
