"""One fleet of real processes for all tests of this folder that need no other; whole again before each of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chaos.messages_server import MessagesServer
from shared.config import Settings
from supervisor import client
from tests.e2e.fleet import QUICK, Fleet, Script
from tests.running_system import EVERYONE, SUPERVISOR, over, running_system
from tests.waiting import wait_until

CANARY = "sk-ant-canary-4d1c9e77aa"
WEBHOOK_SECRET = "whsec-canary-51f0b2"


@pytest.fixture(scope="session")
def running_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two supervisors, three workers of one slot each."""
    script = Script()
    with MessagesServer(script) as server:
        more = {"HANDOFF_PARK_AFTER_S": "2", "HANDOFF_WEBHOOK_SECRET": WEBHOOK_SECRET, "ANTHROPIC_API_KEY": CANARY}
        settings = over(server, **QUICK, **more)
        with running_system(tmp_path_factory.mktemp("fleet"), (), settings) as system:
            for name in ("s1", "s2"):
                system.processes.start(
                    system.celery(name, "-A", SUPERVISOR[1], "worker", "-n", f"{name}@%h", "-Q", SUPERVISOR[2], "-c", "4")
                )
            for name in ("w1", "w2", "w3"):
                system.processes.start(system.celery(name, "-A", EVERYONE[1], "worker", "-n", f"{name}@%h", "-Q", EVERYONE[2], "-c", "1"))
            system.processes.wait_until_ready()
            jobs = client.connect(system.redis_url, Settings(offline=True))
            yield Fleet(system, server, script, jobs)
            jobs.ledger.connection.close()


@pytest.fixture
def fleet(running_fleet: Fleet) -> Iterator[Fleet]:
    """The fleet, whole: what an earlier test killed is there again. It leaves no key that stays for ever."""
    wait_until(running_fleet.is_whole, timeout_s=60, what="the fleet")
    yield running_fleet
    assert running_fleet.kept_for_ever == []
