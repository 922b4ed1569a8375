"""A planner cannot decide that a job waits for a person. The user allows it for the job."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from handoff_queue.shared.types.events import JobStatus
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals, Mode
from handoff_queue.supervisor.client.request import Request
from handoff_queue.testing import Json, Reply, answer_properties, json_reply, result_reply
from tests.doubles.one_step_job import PASS
from tests.hostile.obedient_system import ObedientSystem, obedient_system

pytestmark = pytest.mark.slow

STEPS: list[Json] = [
    {
        "id": name,
        "specialist": "generalist",
        "task": f"Find the price of {name}.",
        "depends_on": [],
        "fallback": "-",
        "on_failure": "ask",
    }
    for name in ("tea", "rice")
]


def obey(request: Json) -> Reply:
    """Answer as each agent. The planner wants a person asked, and each step fails."""
    properties = answer_properties(request)
    if "steps" in properties:
        return json_reply({"steps": STEPS, "synthesis": "merge", "why": ""})
    if "verdict" in properties:
        return json_reply(PASS)
    return result_reply(None, status="failed", problem="no source")


@pytest.fixture
def system(redis_url: str) -> Iterator[ObedientSystem]:
    with obedient_system(redis_url, obey) as running:
        yield running


@pytest.mark.parametrize("mode", [Mode.TEAM, Mode.ADAPTIVE])
def test_a_planner_that_wants_a_person_asked_makes_no_job_wait(
    system: ObedientSystem, mode: Mode
) -> None:
    job_id = system.shell.jobs.submit(Request("What do tea and rice cost?", mode=mode))

    system.run(job_id)

    assert "approval_asked" not in system.shell.kinds(job_id)
    assert system.shell.jobs.info(job_id).status is JobStatus.FAILED


def test_the_person_is_asked_if_the_user_wants_approvals(system: ObedientSystem) -> None:
    approvals = Approvals(what=(ApprovalOf.ANSWER,))
    job_id = system.shell.jobs.submit(
        Request("What do tea and rice cost?", mode=Mode.TEAM, approvals=approvals)
    )

    with pytest.raises(AssertionError):
        system.run(job_id, turns=12)

    assert "approval_asked" in system.shell.kinds(job_id)
    assert system.shell.jobs.info(job_id).status is JobStatus.WAITING
