"""A handoff or a job that freezes processes repeatedly fails. Other work continues."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.claim_requests import MAX_CLAIMS, MAX_FAILED_EVALUATIONS
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.handoff import StopReason
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.names import SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.handoff_publishing import Dispatcher
from handoff_queue.supervisor.engine.sweeper import Sweeper
from handoff_queue.testing import Json, MessagesServer, Reply, first_message_text, tool_call_reply
from tests.doubles.sweeping import sweeping
from tests.e2e.a_supervisor_that_freezes import FREEZES
from tests.e2e.fleet import Fleet, Script
from tests.running_system import SUPERVISOR, model_environment, running_system
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

LEASE_S = 1.0
WATCHDOG_LINE = "Timeout ("
"""Start of the line that the watchdog logs when it ends a process."""
SPECIALIST = """---
name: statue
description: Stands still.
tools: [now]
max_turns: 3
---
You stand still, whatever you are asked to do.
"""


class FreezingModel(Script):
    """Script whose steps called `statue` freeze their worker."""

    def __call__(self, request: Json) -> Reply:
        return (
            tool_call_reply(("now", {}))
            if "Do statue of" in first_message_text(request)
            else super().__call__(request)
        )

    def _plan(self, name: str) -> Json:
        plan = super()._plan(name)
        return plan | {
            "steps": [
                step | ({"specialist": "statue"} if step["id"] == "statue" else {})
                for step in plan["steps"]
            ]
        }


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Start two supervisors and three workers with one slot each, which freeze at marked jobs.

    A sweeper in this process takes no jobs. Without it, no process would contact Redis during
    the restarts, and no lease would end.
    """
    folder, script = tmp_path_factory.mktemp("stiff"), FreezingModel()
    (folder / "specialists").mkdir()
    (folder / "specialists" / "statue.md").write_text(SPECIALIST)
    with MessagesServer(script) as server:
        intervals = {"HANDOFF_LEASE_S": str(LEASE_S), "HANDOFF_SWEEP_INTERVAL_S": "0.1"}
        folders = {"HANDOFF_SPECIALISTS_DIRS": str(folder / "specialists")}
        with running_system(
            folder, (), model_environment(server, **intervals, **folders)
        ) as system:
            for name in ("s1", "s2"):
                app = "tests.e2e.a_supervisor_that_freezes"
                system.start_worker(name, app, SUPERVISOR[2], 4)
            for name in ("w1", "w2", "w3"):
                system.start_worker(name, "tests.e2e.a_worker_that_freezes", "generalist,statue", 1)
            system.processes.wait_until_ready()
            settings = Settings(offline=True, lease_s=LEASE_S)
            jobs = client.connect(system.redis_url, settings)
            app = make_app(
                "bystander", system.admin_url, settings, (SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE)
            )
            bystander = Sweeper(
                system.admin.store, Dispatcher(app), "bystander", interval_s=0.1, keep_s=3_600
            )
            with sweeping(bystander):
                yield Fleet(system, server, script, jobs)
            jobs.store.connection.close()


def freezes(fleet: Fleet, *names: str) -> int:
    """Return how often the watchdog ended a process with one of the names."""
    return sum(
        fleet.system.processes.get_log_path(name).read_text(errors="replace").count(WATCHDOG_LINE)
        for name in names
    )


@pytest.fixture(scope="module")
def job_ids(fleet: Fleet) -> dict[str, JobId]:
    """Run a job that freezes workers, a job that freezes supervisors, and a harmless job
    together.
    """
    fleet.model.on_failure["stands"] = "drop"
    return {
        "workers": fleet.submit("stands", a="", statue=""),
        "supervisors": fleet.submit(FREEZES, a=""),
        "nobody": fleet.submit("harmless", a="", b="a"),
    }


def test_a_handoff_that_freezes_three_workers_fails_and_its_job_continues_without_it(
    fleet: Fleet, job_ids: dict[str, JobId]
) -> None:
    result = fleet.wait_for_end(job_ids["workers"], within_s=60)

    (event,) = [
        result for result in fleet.finished(job_ids["workers"]) if result.handoff_id == "statue.1"
    ]
    assert event.stop_reason is StopReason.TOO_MANY_CLAIMS
    assert fleet.handoff_info(job_ids["workers"], "statue.1").claims == MAX_CLAIMS + 1, (
        "the last claim ends the handoff"
    )
    wait_until(
        lambda: freezes(fleet, "w1", "w2", "w3") == MAX_CLAIMS,
        expected="the end of the last frozen worker",
    )
    assert result.status is JobStatus.PARTIAL


def test_a_job_that_freezes_supervisors_fails_and_other_jobs_continue(
    fleet: Fleet, job_ids: dict[str, JobId]
) -> None:
    result = fleet.wait_for_end(job_ids["supervisors"], within_s=60)

    assert result.status is JobStatus.FAILED
    assert "froze or died, 3 times in a row" in " ".join(result.notes)
    fleet.wait_for_success(job_ids["nobody"])
    wait_until(
        lambda: freezes(fleet, "s1", "s2") >= MAX_FAILED_EVALUATIONS,
        expected="the end of the last frozen supervisor",
    )
    most = 1 + MAX_FAILED_EVALUATIONS + 1
    assert freezes(fleet, "s1", "s2") <= most, (
        "one freeze with the planner's claim, then both supervisors, then one at a time"
    )
