"""A handoff or a job that freezes processes repeatedly is ended. Everything else goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from handoff_queue.shared.broker.celery_app import make_app
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.store.claims import MAX_CLAIMS, MAX_LOOKS
from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.handoff import StopReason
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.names import SUBMISSIONS_QUEUE, SUPERVISOR_QUEUE
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.dispatch import Dispatcher
from handoff_queue.supervisor.engine.sweeper import Sweeper
from handoff_queue.testing import Json, MessagesServer, Reply, first_message_text, tool_call_reply
from tests.e2e.a_supervisor_that_freezes import FREEZES
from tests.e2e.fleet import Fleet, Script
from tests.running_system import EVERYONE, SUPERVISOR, over, running_system
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

LEASE_S = 1.0
FROZE = "Timeout ("
"""The watchdog writes this when it ends a process."""
TOOL = '''
"""A tool that freezes its process."""

import ctypes


def stand_still() -> str:
    """Hold the interpreter lock for ever."""
    ctypes.PyDLL(None).usleep(600_000_000)
    return "never"
'''
SPECIALIST = """---
name: statue
description: Stands still.
tools: [stand_still]
max_turns: 3
---
You stand still, whatever you are asked to do.
"""


class Stiff(Script):
    """The same model; a step that is called so is a statue's."""

    def __call__(self, request: Json) -> Reply:
        return (
            tool_call_reply(("stand_still", {}))
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
def stiff(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two supervisors and three workers with one slot each, which a test can freeze for three
    seconds.

    A further supervisor only sweeps and takes no jobs. Without it, Redis would hear from no process
    during the restarts, and silence ends no lease.
    """
    folder, script = tmp_path_factory.mktemp("stiff"), Stiff()
    (folder / "tools").mkdir()
    (folder / "tools" / "standing.py").write_text(TOOL)
    (folder / "specialists").mkdir()
    (folder / "specialists" / "statue.md").write_text(SPECIALIST)
    with MessagesServer(script) as server:
        more = {"HANDOFF_LEASE_S": str(LEASE_S), "HANDOFF_SWEEP_INTERVAL_S": "0.1"}
        folders = {
            "HANDOFF_TOOLS_DIRS": str(folder / "tools"),
            "HANDOFF_SPECIALISTS_DIRS": str(folder / "specialists"),
        }
        with running_system(folder, (), over(server, **more, **folders)) as system:
            for name in ("s1", "s2"):
                app = "tests.e2e.a_supervisor_that_freezes"
                system.processes.start(
                    system.celery(
                        name,
                        "-A",
                        app,
                        "worker",
                        "-n",
                        f"{name}@%h",
                        "-Q",
                        SUPERVISOR[2],
                        "-c",
                        "4",
                    )
                )
            for name in ("w1", "w2", "w3"):
                queues = "generalist,statue"
                system.processes.start(
                    system.celery(
                        name,
                        "-A",
                        EVERYONE[1],
                        "worker",
                        "-n",
                        f"{name}@%h",
                        "-Q",
                        queues,
                        "-c",
                        "1",
                    )
                )
            system.processes.wait_until_ready()
            settings = Settings(offline=True, lease_s=LEASE_S)
            jobs = client.connect(system.redis_url, settings)
            app = make_app(
                "bystander", system.redis_url, settings, (SUPERVISOR_QUEUE, SUBMISSIONS_QUEUE)
            )
            bystander = Sweeper(
                jobs.store, Dispatcher(app), "bystander", interval_s=0.1, keep_s=3_600
            )
            bystander.start()
            yield Fleet(system, server, script, jobs)
            bystander.stop()
            bystander.wait_until_withdrawn()
            jobs.store.connection.close()


def froze(fleet: Fleet, *names: str) -> int:
    """Return how often the watchdog ended a process with one of the names."""
    return sum(
        fleet.system.processes.log_of(name).read_text(errors="replace").count(FROZE)
        for name in names
    )


@pytest.fixture(scope="module")
def at_once(stiff: Fleet) -> dict[str, JobId]:
    """Run a job that freezes workers, a job that freezes supervisors, and a harmless job together."""
    stiff.model.on_failure["stands"] = "drop"
    return {
        "workers": stiff.submit("stands", a="", statue=""),
        "supervisors": stiff.submit(FREEZES, a=""),
        "nobody": stiff.submit("beside", a="", b="a"),
    }


def test_a_handoff_that_freezes_three_workers_fails_and_the_job_continues_without_it(
    stiff: Fleet, at_once: dict[str, JobId]
) -> None:
    result = stiff.ends(at_once["workers"], within_s=60)

    (event,) = [one for one in stiff.finished(at_once["workers"]) if one.handoff_id == "statue.1"]
    assert event.stop_reason is StopReason.TOO_MANY_CLAIMS
    assert stiff.standing(at_once["workers"], "statue.1").claims == MAX_CLAIMS + 1, (
        "the last one to end it"
    )
    wait_until(
        lambda: froze(stiff, "w1", "w2", "w3") == MAX_CLAIMS, what="the end of the last of them"
    )
    assert result.status is JobStatus.PARTIAL


def test_a_job_that_freezes_supervisors_fails_and_other_jobs_continue(
    stiff: Fleet, at_once: dict[str, JobId]
) -> None:
    result = stiff.ends(at_once["supervisors"], within_s=60)

    assert result.status is JobStatus.FAILED
    assert "froze or died, 3 times in a row" in " ".join(result.notes)
    stiff.ends_well(at_once["nobody"])
    wait_until(lambda: froze(stiff, "s1", "s2") >= MAX_LOOKS, what="the end of the last of them")
    most = 1 + MAX_LOOKS + 1
    assert froze(stiff, "s1", "s2") <= most, (
        "once in the planner's claim, then both of them the first time, then one at a time"
    )
