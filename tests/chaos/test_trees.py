"""The calls of a child job count in the budget of its parent, too."""

from __future__ import annotations

from dataclasses import replace

from handoff_queue.chaos.expected_handoffs import OK, Ended
from handoff_queue.chaos.expected_outcomes import SPENT, StoredJob
from handoff_queue.chaos.invariants import RunRecords
from handoff_queue.chaos.job_generator import TIGHT_STEPS
from handoff_queue.chaos.job_shapes import Shape
from handoff_queue.chaos.model_server import Call
from handoff_queue.chaos.planned_jobs import TIGHT_TREE_CALLS, CallKey, PlannedJob, PlannedStep
from handoff_queue.chaos.report import convert_to_json, find_broken_promises, format_table
from handoff_queue.shared.types.handoff import StopReason
from handoff_queue.shared.types.limits import JobLimits

STEPS = tuple(PlannedStep(name, "writer") for name in TIGHT_STEPS)
TEAMS = [PlannedJob(f"1-0-{step}", Shape.TIGHT, STEPS, seed=1, parent="1-0") for step in "xy"]
TREE = PlannedJob(
    "1-0",
    Shape.TIGHT_TREE,
    tuple(PlannedStep(team.name[-1], "supervisor", team=team) for team in TEAMS),
    seed=1,
)
CUT = Ended("partial", StopReason.JOB_BUDGET.value)
TEAM_RESULTS = dict.fromkeys(("planner.1", "a.1", "b.1", "assessor.1"), OK) | {
    f"{name}.1": CUT for name in TIGHT_STEPS[2:]
}
TEAM_STORY = StoredJob(
    "partial", (8.0,), results=TEAM_RESULTS, reason=SPENT, limits=JobLimits(max_turns=4)
)
PART = Ended("partial", "max_turns")
ROOT_STORY = StoredJob(
    "partial", (9.0,), results={"planner.1": OK, "x.1": PART, "y.1": PART, "assessor.1": OK}
)
STORIES = {"1-0": ROOT_STORY, "1-0-x": TEAM_STORY, "1-0-y": TEAM_STORY}


def call(job: str, handoff: str) -> Call:
    return Call(CallKey(job, handoff, 1), "worker1", 1.0, out_at=1.5)


PLANNED_CALLS = [call("1-0", handoff) for handoff in ("planner.1", "assessor.1")]
PLANNED_CALLS += [
    call(team.name, handoff)
    for team in TEAMS
    for handoff in ("planner.1", "a.1", "b.1", "assessor.1")
]


def records(*more: Call, job_records: dict[str, StoredJob] = STORIES) -> RunRecords:
    return RunRecords([TREE], [*PLANNED_CALLS, *more], [], job_records, 3.0)


def test_a_tree_with_the_calls_that_its_root_allows_is_within_its_budget() -> None:
    records_of_run = records()

    assert records_of_run.call_count == records_of_run.needed == TIGHT_TREE_CALLS
    assert find_broken_promises(records_of_run) == []
    assert convert_to_json(records_of_run)["child_jobs"] == 2
    assert "| child jobs begun | 2 |" in format_table(records_of_run)


def test_an_overpayment_for_a_child_is_an_overrun_of_every_ancestor() -> None:
    assert records(call("1-0-x", "c.1")).overruns == [
        "1-0: 11 turns of 10 turns",
        "1-0-x: 5 turns of 4 turns",
    ]
    with_larger_limit = {**STORIES, "1-0-x": replace(TEAM_STORY, limits=JobLimits(max_turns=20))}
    assert records(call("1-0-x", "c.1"), job_records=with_larger_limit).overruns == [
        "1-0: 11 turns of 10 turns"
    ]


def test_a_child_job_may_not_exceed_its_own_limit() -> None:
    with_smaller_limit = {**STORIES, "1-0-y": replace(TEAM_STORY, limits=JobLimits(max_turns=3))}

    assert records(job_records=with_smaller_limit).overruns == ["1-0-y: 4 turns of 3 turns"]
