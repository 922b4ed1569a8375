"""A worker is killed, and then the supervisor that recovers its handoff, at any point of the
recovery. The handoff still runs elsewhere in time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from handoff_queue.chaos.fleet import arm
from handoff_queue.shared.observability.failpoints import FAILPOINTS
from handoff_queue.testing import MessagesServer
from tests.e2e.fleet import Fleet, Script
from tests.running_system import ALL_SPECIALISTS, SUPERVISOR, model_environment, running_system
from tests.waiting import MAX_WAIT_S, wait_until

pytestmark = pytest.mark.slow

LEASE_S = 2.0
RECOVERY_S = LEASE_S + 5
POINTS = {
    "before its wake-up leaves": "publish.supervisor.before",
    "when its wake-up has left": "publish.supervisor.after",
    "before it has looked": "script.set_next_evaluation.before",
    "when it has looked": "script.set_next_evaluation.after",
    "before the message leaves": "publish.part.before",
    "when the message has left": "publish.part.after",
    "when it has said so": "script.mark_sent.after",
    "before it acknowledges the wake-up": "ack.before",
}


@pytest.fixture(scope="module")
def armed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder whose files arm failpoints in the supervisors."""
    return tmp_path_factory.mktemp("failpoints")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, armed: Path) -> Iterator[Fleet]:
    """Start two supervisors and two workers."""
    script, settings = Script(), {"HANDOFF_LEASE_S": str(LEASE_S)}
    with (
        MessagesServer(script) as server,
        running_system(
            tmp_path_factory.mktemp("fleet"), (), model_environment(server, **settings)
        ) as system,
    ):
        for kind, (_, app, queues), failpoints in (
            ("s", SUPERVISOR, {FAILPOINTS: str(armed)}),
            ("w", ALL_SPECIALISTS, {}),
        ):
            for name in (f"{kind}1", f"{kind}2"):
                spec = system.celery_worker(name, app, queues, 2, variables=failpoints)
                system.processes.start(replace(spec, is_killed_on_purpose=True))
        system.processes.wait_until_ready()
        fleet = Fleet(system, server, script, system.jobs())
        yield fleet
        fleet.jobs.store.connection.close()


@pytest.mark.parametrize("moment", POINTS)
def test_a_handoff_recovers_in_time_after_kills_of_its_worker_and_a_supervisor(
    fleet: Fleet, armed: Path, moment: str
) -> None:
    wait_until(fleet.is_complete, timeout_s=60, expected="the fleet")
    usual_s = fleet.usual_s()
    name, point = POINTS[moment].replace(".", "-"), POINTS[moment]
    held = fleet.model.hold(name, "a")
    job_id = fleet.submit(name, a="")
    assert held.arrived.wait(MAX_WAIT_S)
    repeated = fleet.model.hold(name, "a")

    arm(armed, point, "kill")
    fleet.kill(fleet.pid_of(job_id, "a.1"))
    killed_at = time.monotonic()
    assert repeated.arrived.wait(MAX_WAIT_S)
    took_s = time.monotonic() - killed_at

    wait_until(lambda: list(armed.glob(f"{point}@*")), expected="the second kill")
    assert took_s < RECOVERY_S + usual_s
    held.release.set()
    repeated.release.set()
    fleet.wait_for_success(job_id)
    assert fleet.model.calls[name, "a", 1] == 2
