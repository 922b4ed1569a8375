"""A supervisor is killed at every moment between a step and its child job, and between that
and its parent: one child, one result.
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
from handoff_queue.supervisor.client.client import Request
from handoff_queue.testing import MessagesServer
from tests.e2e.fleet import ENVELOPE, QUICK, Fleet, Script
from tests.e2e.test_teams import a_team, begun, calls, children
from tests.running_system import EVERYONE, SUPERVISOR, over, running_system
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
ALL_THE_TIME_S = 120
BEGINS = (
    "script.commit.after",
    "script.commit.before",
    "script.commit.after",
    "publish.supervisor.before",
)
"""Failpoints: the step is issued; before the child begins; after it; before its first wake-up."""
TELLS = (
    "script.commit.after",
    "script.finish.before",
    "script.finish.after",
    "script.commit.before",
    "script.commit.after",
)
"""Failpoints: the child has ended; before its report; after its report; before the record of the
report; after it.
"""


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Fleet]:
    """A fleet whose supervisors run failpoints from the folder `points`."""
    script, points = Script(), tmp_path / "points"
    points.mkdir()
    with (
        MessagesServer(script) as server,
        running_system(tmp_path, (EVERYONE,), over(server, **QUICK)) as system,
    ):
        for name in ("s1", "s2"):
            spec = system.celery(
                name,
                "-A",
                SUPERVISOR[1],
                "worker",
                "-n",
                f"{name}@%h",
                "-Q",
                SUPERVISOR[2],
                "-c",
                "4",
            )
            system.processes.start(
                replace(
                    spec,
                    environment={**system.environment, FAILPOINTS: str(points)},
                    is_hunted=True,
                )
            )
        system.processes.wait_until_ready()
        jobs = client.connect(system.redis_url, Settings(offline=True))
        yield Fleet(system, server, script, jobs)
        jobs.store.connection.close()


def kill_at(points: Path, which: tuple[str, ...], go: Callable[[], None]) -> None:
    """Kill the first process that reaches each failpoint. Each failpoint is armed after the
    previous one has fired.
    """
    for number, point in enumerate(which):
        for fired in points.glob(f"{point}@*"):
            fired.unlink()
        arm(points, point, "kill")
        if number == 0:
            go()
        wait_until(
            partial(_has_fired, points, point), timeout_s=60, what=f"a supervisor to die at {point}"
        )


def _has_fired(points: Path, point: str) -> bool:
    return any(points.glob(f"{point}@*"))


def count(fleet: Fleet, job_id: JobId, kind: type) -> int:
    return sum(isinstance(one.event, kind) for one in fleet.jobs.events(job_id, follow=False))


def wait_until_noted(fleet: Fleet, child: JobId, times: int) -> None:
    """A parent continues after the report, even if its child's supervisor dies before it records
    the report. Another supervisor records it.
    """
    wait_until(
        lambda: count(fleet, child, ParentTold) >= times,
        what="a note that the parent has been told",
    )


def test_a_kill_at_the_begin_or_the_end_of_a_child_repeats_no_work(
    mortal: Fleet, tmp_path: Path
) -> None:
    names = ["kill", a_team(mortal, "kill", "x", a="")]
    mortal.model.plans["kill"] = {"x": "", "w": "x"}
    planner, assessor = (
        mortal.model.hold("kill", "planner"),
        mortal.model.hold("kill-x", "assessor"),
    )
    job_id = mortal.jobs.submit(Request("plan kill"))

    assert planner.arrived.wait(60)
    kill_at(tmp_path / "points", BEGINS, planner.go.set)
    assert assessor.arrived.wait(60)
    kill_at(tmp_path / "points", TELLS, assessor.go.set)
    result = mortal.ends_well(job_id, ALL_THE_TIME_S)

    (child,) = children(mortal, job_id)
    wait_until_noted(mortal, child, 1)
    assert begun(mortal, job_id) == [child]
    assert [count(mortal, child, kind) for kind in (JobSubmitted, ParentTold)] == [1, 1]
    assert sum(one.handoff_id == "x.1" for one in mortal.issued(job_id)) == 1
    assert count(mortal, job_id, HandoffFinished) == count(mortal, job_id, HandoffIssued)
    assert set(calls(mortal, *names).values()) == {1}, (
        "no call was in the air when they died, and none was made again"
    )
    assert result.usage["turns"] == sum(calls(mortal, *names).values())


def test_a_kill_while_a_team_continues_or_ends_pays_for_its_gap_once(
    mortal: Fleet, tmp_path: Path
) -> None:
    names, points = ["mend", a_team(mortal, "mend", "x", a="", b="")], tmp_path / "points"
    mortal.model.plans["mend"], mortal.model.on_failure["mend-x"] = {"x": ""}, "drop"
    mortal.model.envelopes["mend-x", "b"] = {
        **ENVELOPE,
        "status": "failed",
        "problem": "The archive is closed.",
    }
    job_id = mortal.jobs.submit(Request("plan mend"))
    assert mortal.ends(job_id, ALL_THE_TIME_S).status is JobStatus.PARTIAL
    (child,), before = children(mortal, job_id), calls(mortal, *names)

    mortal.model.envelopes["mend-x", "b"] = ENVELOPE
    assessor = mortal.model.hold("mend-x", "assessor")
    kill_at(points, BEGINS, partial(mortal.jobs.retry, job_id))
    assert assessor.arrived.wait(60)
    kill_at(points, TELLS, assessor.go.set)
    result = mortal.jobs.result(job_id, wait_s=ALL_THE_TIME_S)

    assert result.status is JobStatus.OK, result.notes
    assert children(mortal, job_id) == [child, child]
    wait_until_noted(mortal, child, 2)
    assert [count(mortal, child, kind) for kind in (JobSubmitted, RetryRequested, ParentTold)] == [
        1,
        1,
        2,
    ]
    again = calls(mortal, *names) - before
    assert again == {
        ("mend-x", "b", 1): 1,
        ("mend-x", "assessor", 1): 1,
        ("mend", "assessor", 1): 1,
    }
    made, turns, cut = (
        sum(calls(mortal, *names).values()),
        result.usage["turns"],
        result.usage["cut"]["calls"],
    )
    assert turns - cut <= made <= turns, (
        "who died right after the last commit may have set a call aside, which counts as made"
    )
