"""A kill of a supervisor at any moment of the start or the end of a child job leaves one child and
one result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from handoff_queue.chaos.fleet import arm
from handoff_queue.shared.observability.failpoints import FAILPOINTS
from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.events import (
    HandoffFinished,
    HandoffIssued,
    JobStatus,
    JobSubmitted,
    ParentTold,
    RetryRequested,
)
from handoff_queue.shared.types.ids import JobId
from handoff_queue.supervisor.client import client
from handoff_queue.supervisor.client.request import Request
from handoff_queue.testing import MessagesServer
from tests.e2e.fleet import ENVELOPE, SHORT_LEASES, Fleet, Script
from tests.e2e.test_child_jobs import a_team, calls, children, submitted_children
from tests.running_system import ALL_SPECIALISTS, SUPERVISOR, model_environment, running_system
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
TIMEOUT_S = 120
START_FAILPOINTS = (
    "script.commit.after",
    "script.commit.before",
    "script.commit.after",
    "publish.supervisor.before",
)
"""The step is issued, before the child is submitted, after it, before the child's first wake-up."""
END_FAILPOINTS = (
    "script.commit.after",
    "script.finish.before",
    "script.finish.after",
    "script.commit.before",
    "script.commit.after",
)
"""The child has ended, before its report, after it, before the report is recorded, after it."""


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder whose files arm failpoints in the supervisors."""
    return tmp_path_factory.mktemp("points")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, points: Path) -> Iterator[Fleet]:
    """Start a fleet whose supervisors run failpoints, and restart after each kill."""
    script = Script()
    with (
        MessagesServer(script) as server,
        running_system(
            tmp_path_factory.mktemp("fleet"),
            (ALL_SPECIALISTS,),
            model_environment(server, **SHORT_LEASES),
        ) as system,
    ):
        _, app, queues = SUPERVISOR
        for name in ("s1", "s2"):
            spec = system.celery_worker(name, app, queues, 4, variables={FAILPOINTS: str(points)})
            system.processes.start(replace(spec, is_killed_on_purpose=True))
        system.processes.wait_until_ready()
        jobs = client.connect(system.redis_url, Settings(offline=True))
        yield Fleet(system, server, script, jobs)
        jobs.store.connection.close()


def kill_at(points: Path, names: tuple[str, ...], action: Callable[[], None]) -> None:
    """Kill the first process that reaches each failpoint, in order.

    Each failpoint is armed after the previous failpoint has fired. `action` runs once, when the
    first failpoint is armed.
    """
    for number, point in enumerate(names):
        for fired in points.glob(f"{point}@*"):
            fired.unlink()
        arm(points, point, "kill")
        if number == 0:
            action()
        wait_until(
            partial(_has_fired, points, point),
            timeout_s=60,
            expected=f"a supervisor to die at {point}",
        )


def _has_fired(points: Path, point: str) -> bool:
    return any(points.glob(f"{point}@*"))


def count(fleet: Fleet, job_id: JobId, kind: type) -> int:
    return sum(
        isinstance(recorded.event, kind) for recorded in fleet.jobs.events(job_id, follow=False)
    )


def wait_for_reports(fleet: Fleet, child: JobId, times: int) -> None:
    """Wait until the child's journal has this number of reports to its parent.

    If the supervisor dies after a report, another supervisor records it in the journal.
    """
    wait_until(
        lambda: count(fleet, child, ParentTold) >= times,
        expected="the record of the report to the parent",
    )


def test_a_kill_at_the_begin_or_the_end_of_a_child_repeats_no_work(
    fleet: Fleet, points: Path
) -> None:
    names = ["kill", a_team(fleet, "kill", "x", a="")]
    fleet.model.plans["kill"] = {"x": "", "w": "x"}
    planner, assessor = (
        fleet.model.hold("kill", "planner"),
        fleet.model.hold("kill-x", "assessor"),
    )
    job_id = fleet.jobs.submit(Request("plan kill"))

    assert planner.arrived.wait(60)
    kill_at(points, START_FAILPOINTS, planner.release.set)
    assert assessor.arrived.wait(60)
    kill_at(points, END_FAILPOINTS, assessor.release.set)
    result = fleet.wait_for_success(job_id, TIMEOUT_S)

    (child,) = children(fleet, job_id)
    wait_for_reports(fleet, child, 1)
    assert submitted_children(fleet, job_id) == [child]
    assert [count(fleet, child, kind) for kind in (JobSubmitted, ParentTold)] == [1, 1]
    assert sum(event.handoff_id == "x.1" for event in fleet.issued(job_id)) == 1
    assert count(fleet, job_id, HandoffFinished) == count(fleet, job_id, HandoffIssued)
    assert set(calls(fleet, *names).values()) == {1}, "no call was interrupted or repeated"
    assert result.usage["turns"] == sum(calls(fleet, *names).values())


def test_a_kill_while_a_team_continues_or_ends_pays_for_its_gap_once(
    fleet: Fleet, points: Path
) -> None:
    names = ["repair", a_team(fleet, "repair", "x", a="", b="")]
    fleet.model.plans["repair"], fleet.model.on_failure["repair-x"] = {"x": ""}, "drop"
    fleet.model.envelopes["repair-x", "b"] = {
        **ENVELOPE,
        "status": "failed",
        "problem": "The archive is closed.",
    }
    job_id = fleet.jobs.submit(Request("plan repair"))
    assert fleet.wait_for_end(job_id, TIMEOUT_S).status is JobStatus.PARTIAL
    (child,), before = children(fleet, job_id), calls(fleet, *names)

    fleet.model.envelopes["repair-x", "b"] = ENVELOPE
    assessor = fleet.model.hold("repair-x", "assessor")
    kill_at(points, START_FAILPOINTS, partial(fleet.jobs.retry, job_id))
    assert assessor.arrived.wait(60)
    kill_at(points, END_FAILPOINTS, assessor.release.set)
    result = fleet.jobs.result(job_id, wait_s=TIMEOUT_S)

    assert result.status is JobStatus.OK, result.notes
    assert children(fleet, job_id) == [child, child]
    wait_for_reports(fleet, child, 2)
    assert [count(fleet, child, kind) for kind in (JobSubmitted, RetryRequested, ParentTold)] == [
        1,
        1,
        2,
    ]
    repeated = calls(fleet, *names) - before
    assert repeated == {
        ("repair-x", "b", 1): 1,
        ("repair-x", "assessor", 1): 1,
        ("repair", "assessor", 1): 1,
    }
    count_of_calls, turns, cut = (
        sum(calls(fleet, *names).values()),
        result.usage["turns"],
        result.usage["cut"]["calls"],
    )
    assert turns - cut <= count_of_calls <= turns, (
        "a supervisor that died after the last commit may have reserved a call, which counts"
    )
