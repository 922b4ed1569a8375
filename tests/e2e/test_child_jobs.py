"""Teams of teams: answers go up to the parent, budgets and cancels go down to child jobs, and no
call is paid twice.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from handoff_queue.shared.types.events import HandoffIssued, JobStatus
from handoff_queue.shared.types.ids import JobId
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.client.request import Request
from tests.e2e.fleet import ENVELOPE, Fleet
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
TIMEOUT_S = 90


def a_team(fleet: Fleet, name: str, step: str, *, turns: int = 1, **plan: str) -> str:
    """Let a child job do this step with its own plan. Return the name of the team."""
    team = f"{name}-{step}"
    fleet.model.teams[name, step] = team
    fleet.model.plans[team] = plan
    fleet.model.turns[team] = turns
    return team


def children(fleet: Fleet, job_id: JobId) -> list[JobId]:
    events = [recorded.event for recorded in fleet.jobs.events(job_id, follow=False)]
    return [
        event.child.job_id for event in events if isinstance(event, HandoffIssued) and event.child
    ]


def submitted_children(fleet: Fleet, job_id: JobId) -> list[JobId]:
    """Return the child jobs, or an empty list if a child job is not submitted yet."""
    child_ids = children(fleet, job_id)
    return (
        child_ids
        if child_ids and len(fleet.jobs.store.jobs.read(child_ids)) == len(child_ids)
        else []
    )


def calls(fleet: Fleet, *names: str) -> Counter[tuple[str, str, int]]:
    """Return the number of model calls of these jobs."""
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
    result = fleet.wait_for_success(job_id, TIMEOUT_S)

    assert str(result.answer).startswith("Rust [1] and Go [2].")
    assert [
        (citation["step"], citation["source"], citation["quote"]) for citation in result.citations
    ] == [
        ("x", "notes.md", "Qdrant is written in Rust."),
        ("y", "notes.md", "Milvus is written in Go."),
    ]
    assert set(calls(fleet, *names).values()) == {1}
    assert result.usage["turns"] == sum(calls(fleet, *names).values())


def test_a_team_of_a_team_answers_and_has_no_further_team(fleet: Fleet) -> None:
    names = ["deep", a_team(fleet, "deep", "x", y=""), a_team(fleet, "deep-x", "y", z="")]
    fleet.model.plans["deep"] = {"x": ""}

    job_id = fleet.jobs.submit(Request("plan deep"))
    result = fleet.wait_for_success(job_id, TIMEOUT_S)

    (child,) = children(fleet, job_id)
    (grandchild,) = children(fleet, child)
    assert [fleet.jobs.info(job).status for job in (child, grandchild)] == [JobStatus.OK] * 2
    assert result.usage["turns"] == sum(calls(fleet, *names).values())
    planner = next(
        handoff
        for handoff in fleet.jobs.result(grandchild).handoffs
        if handoff["assigned_to"] == "planner"
    )
    assert "supervisor" not in str(planner["expected_output_format"]), (
        "its planner cannot add another team"
    )


def test_a_tree_of_jobs_makes_no_more_calls_than_the_limit_of_its_root(fleet: Fleet) -> None:
    names = [
        "ten",
        *(a_team(fleet, "ten", step, a="", b="", c="", d="", e="") for step in ("x", "y")),
    ]
    fleet.model.plans["ten"] = {"x": "", "y": ""}

    job_id = fleet.jobs.submit(Request("plan ten", limits=JobLimits(max_turns=10)))
    result = fleet.wait_for_end(job_id, TIMEOUT_S)

    assert result.status is JobStatus.PARTIAL
    assert sum(calls(fleet, *names).values()) == 10
    assert result.usage["turns"] == 10


def test_a_share_too_small_for_a_team_is_reported_and_the_generalist_takes_the_step(
    fleet: Fleet,
) -> None:
    a_team(fleet, "small", "x", a="", b="")
    fleet.model.plans["small"] = {"x": ""} | dict.fromkeys("vwyz", "x")
    asking = Approvals(what=(ApprovalOf.PLAN,))

    job_id = fleet.jobs.submit(
        Request("plan small", limits=JobLimits(max_tokens=32_000), approvals=asking)
    )
    wait_until(lambda: fleet.jobs.info(job_id).approval, timeout_s=30, expected="the question")
    plan = fleet.jobs.result(job_id).plan or {}
    fleet.jobs.approve(job_id)
    fleet.wait_for_end(job_id, TIMEOUT_S)

    assert "too little: 12800 tokens where a child job needs room for " in plan["child_jobs"]
    specialists = [event.assigned_to for event in fleet.issued(job_id) if event.step_id == "x"]
    assert specialists == ["supervisor", "generalist"]


def test_a_cancel_cuts_the_call_of_a_child(fleet: Fleet) -> None:
    a_team(fleet, "halt", "x", a="")
    fleet.model.plans["halt"] = {"x": ""}
    held = fleet.model.hold("halt-x", "a")
    job_id = fleet.jobs.submit(Request("plan halt"))
    assert held.arrived.wait(60)
    (child,) = children(fleet, job_id)

    fleet.jobs.cancel(job_id)

    wait_until(
        lambda: fleet.jobs.info(child).status is JobStatus.CANCELLED,
        expected="the child to be cancelled",
    )
    wait_until(
        lambda: fleet.handoff_info(child, "a.1").state == "dropped",
        expected="the end of its handoff",
    )
    assert fleet.wait_for_end(job_id, TIMEOUT_S).status is JobStatus.CANCELLED
    assert fleet.jobs.info(job_id).cut_calls == 1, (
        "every level counts the cut call, because it may have been paid"
    )
    held.release.set()


def test_a_dead_worker_of_a_child_job_repeats_only_the_interrupted_call(fleet: Fleet) -> None:
    names = ["loss", a_team(fleet, "loss", "x", a="", turns=2)]
    fleet.model.plans["loss"] = {"x": ""}
    held = fleet.model.hold("loss-x", "a", 2)
    job_id = fleet.jobs.submit(Request("plan loss"))
    assert held.arrived.wait(60)
    (child,) = children(fleet, job_id)

    fleet.kill(fleet.pid_of(child, "a.1"))
    result = fleet.wait_for_success(job_id, TIMEOUT_S)

    counts = calls(fleet, *names)
    assert counts.pop(("loss-x", "a", 2)) == 2, "the interrupted call"
    assert set(counts.values()) == {1}
    assert (result.usage["turns"], result.usage["cut"]["calls"]) == (sum(counts.values()) + 2, 1)
    held.release.set()
