"""Teams of teams with real processes: answers that travel up, budgets and cancels that travel
down, and nothing paid twice.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from handoff_queue.shared.types.events import HandoffIssued, JobStatus
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.client.client import Request
from tests.e2e.fleet import ENVELOPE, Fleet
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
ALL_THE_TIME_S = 90


def a_team(fleet: Fleet, name: str, step: str, *, turns: int = 1, **plan: str) -> str:
    """Let a sub-supervisor do this step with its own plan. Return the name of the team."""
    team = f"{name}-{step}"
    fleet.model.teams[name, step] = team
    fleet.model.plans[team] = plan
    fleet.model.turns[team] = turns
    return team


def children(fleet: Fleet, job_id: JobId) -> list[JobId]:
    events = [one.event for one in fleet.jobs.events(job_id, follow=False)]
    return [
        event.child.job_id for event in events if isinstance(event, HandoffIssued) and event.child
    ]


def begun(fleet: Fleet, job_id: JobId) -> list[JobId]:
    """Return the existing child jobs."""
    made = children(fleet, job_id)
    return made if made and len(fleet.jobs.store.jobs.standings(made)) == len(made) else []


def calls(fleet: Fleet, *names: str) -> Counter[tuple[str, str, int]]:
    """Return the calls that the model's server has counted."""
    return Counter({key: count for key, count in fleet.model.calls.items() if key[0] in names})


def test_two_teams_answer_with_their_sources(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text(
        "# Notes\n\nQdrant is written in Rust. Milvus is written in Go.\n"
    )
    names = ["firm", a_team(fleet, "firm", "x", a=""), a_team(fleet, "firm", "y", b="", c="b")]
    for team, step, quote in (
        ("firm-x", "a", "Qdrant is written in Rust."),
        ("firm-y", "c", "Milvus is written in Go."),
    ):
        claim = {"id": "c1", "text": quote, "sources": [{"source": "notes.md", "quote": quote}]}
        fleet.model.envelopes[team, step] = ENVELOPE | {
            "output": f"{quote} [c1]",
            "claims": [claim],
        }
    fleet.model.envelopes["firm", "w"] = ENVELOPE | {"output": "Rust [x.c1] and Go [y.c1]."}
    fleet.model.plans["firm"] = {"x": "", "y": "", "w": "x y"}

    job_id = fleet.jobs.submit(Request("plan firm", documents=tmp_path))
    result = fleet.ends_well(job_id, ALL_THE_TIME_S)

    assert str(result.answer).startswith("Rust [1] and Go [2].")
    assert [(one["step"], one["source"], one["quote"]) for one in result.citations] == [
        ("x", "notes.md", "Qdrant is written in Rust."),
        ("y", "notes.md", "Milvus is written in Go."),
    ]
    assert set(calls(fleet, *names).values()) == {1}
    assert result.usage["turns"] == sum(calls(fleet, *names).values())


def test_a_team_of_a_team_answers_and_goes_no_deeper(fleet: Fleet) -> None:
    names = ["deep", a_team(fleet, "deep", "x", y=""), a_team(fleet, "deep-x", "y", z="")]
    fleet.model.plans["deep"] = {"x": ""}

    job_id = fleet.jobs.submit(Request("plan deep"))
    result = fleet.ends_well(job_id, ALL_THE_TIME_S)

    (child,) = children(fleet, job_id)
    (grandchild,) = children(fleet, child)
    assert [fleet.jobs.standing(one).status for one in (child, grandchild)] == [JobStatus.OK] * 2
    assert result.usage["turns"] == sum(calls(fleet, *names).values())
    planned = next(
        one for one in fleet.jobs.result(grandchild).handoffs if one["assigned_to"] == "planner"
    )
    assert "supervisor" not in str(planned["expected_output_format"]), (
        "its planner was not offered another"
    )


def test_a_tree_makes_as_many_calls_as_its_root_may_and_not_one_more(fleet: Fleet) -> None:
    names = [
        "ten",
        *(a_team(fleet, "ten", step, a="", b="", c="", d="", e="") for step in ("x", "y")),
    ]
    fleet.model.plans["ten"] = {"x": "", "y": ""}

    job_id = fleet.jobs.submit(Request("plan ten", limits=JobLimits(max_turns=10)))
    result = fleet.ends(job_id, ALL_THE_TIME_S)

    assert result.status is JobStatus.PARTIAL
    assert sum(calls(fleet, *names).values()) == 10
    assert result.usage["turns"] == 10


def test_a_share_too_small_for_a_team_is_reported_with_the_bill_and_the_generalist_takes_the_step(
    fleet: Fleet,
) -> None:
    a_team(fleet, "small", "x", a="", b="")
    fleet.model.plans["small"] = {"x": ""} | dict.fromkeys("vwyz", "x")
    asking = Approvals(what=(ApprovalOf.PLAN,))

    job_id = fleet.jobs.submit(
        Request("plan small", limits=JobLimits(max_tokens=34_000), approvals=asking)
    )
    wait_until(lambda: fleet.jobs.standing(job_id).approval, timeout_s=30, what="the question")
    asked = fleet.jobs.result(job_id).plan or {}
    fleet.jobs.approve(job_id)
    fleet.ends(job_id, ALL_THE_TIME_S)

    assert "too little: 13600 tokens where a team needs room for " in asked["sub_teams"]
    to = [event.assigned_to for event in fleet.issued(job_id) if event.step_id == "x"]
    assert to == ["supervisor", "generalist"]


def test_a_cancel_cuts_the_call_of_a_child(fleet: Fleet) -> None:
    a_team(fleet, "halt", "x", a="")
    fleet.model.plans["halt"] = {"x": ""}
    held = fleet.model.hold("halt-x", "a")
    job_id = fleet.jobs.submit(Request("plan halt"))
    assert held.arrived.wait(60)
    (child,) = children(fleet, job_id)

    fleet.jobs.cancel(job_id)

    wait_until(
        lambda: fleet.jobs.standing(child).status is JobStatus.CANCELLED,
        what="the child to be cancelled",
    )
    wait_until(
        lambda: fleet.standing(child, "a.1").state == "dropped", what="its handoff to be let go"
    )
    assert fleet.ends(job_id, ALL_THE_TIME_S).status is JobStatus.CANCELLED
    assert fleet.jobs.standing(job_id).cut_calls == 1, "at every level: it may have been paid"
    held.go.set()


def test_a_dead_worker_of_a_child_costs_no_more_than_elsewhere(fleet: Fleet) -> None:
    names = ["loss", a_team(fleet, "loss", "x", a="", turns=2)]
    fleet.model.plans["loss"] = {"x": ""}
    held = fleet.model.hold("loss-x", "a", 2)
    job_id = fleet.jobs.submit(Request("plan loss"))
    assert held.arrived.wait(60)
    (child,) = children(fleet, job_id)

    fleet.kill(fleet.pid_of(child, "a.1"))
    result = fleet.ends_well(job_id, ALL_THE_TIME_S)

    made = calls(fleet, *names)
    assert made.pop(("loss-x", "a", 2)) == 2, "the one that was in the air"
    assert set(made.values()) == {1}
    assert (result.usage["turns"], result.usage["cut"]["calls"]) == (sum(made.values()) + 2, 1)
    held.go.set()
