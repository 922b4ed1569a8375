"""The accounts of a tree: a child's calls count for its parent, too."""

from __future__ import annotations

from dataclasses import replace

from handoff_queue.chaos.expected_handoffs import OK, Ended
from handoff_queue.chaos.expected_outcomes import JOB_BUDGET, SPENT, Story
from handoff_queue.chaos.invariants import Books
from handoff_queue.chaos.job_generator import TIGHT_STEPS
from handoff_queue.chaos.model import Call
from handoff_queue.chaos.plan import TIGHT_TREE_CALLS, CallKey, PlannedJob, PlannedStep
from handoff_queue.chaos.report import broken_of, json_of, table_of
from handoff_queue.chaos.shapes import Shape
from handoff_queue.shared.types.limits import JobLimits

STEPS = tuple(PlannedStep(name, "writer") for name in TIGHT_STEPS)
TEAMS = [PlannedJob(f"1-0-{step}", Shape.TIGHT, STEPS, seed=1, parent="1-0") for step in "xy"]
TREE = PlannedJob(
    "1-0",
    Shape.TIGHT_TREE,
    tuple(PlannedStep(one.name[-1], "supervisor", team=one) for one in TEAMS),
    seed=1,
)
CUT = Ended("partial", JOB_BUDGET)
IN_TEAM = dict.fromkeys(("planner.1", "a.1", "b.1", "assessor.1"), OK) | {
    f"{name}.1": CUT for name in TIGHT_STEPS[2:]
}
OF_A_TEAM = Story("partial", (8.0,), results=IN_TEAM, reason=SPENT, limits=JobLimits(max_turns=4))
PART = Ended("partial", "max_turns")
OF_THE_TREE = Story(
    "partial", (9.0,), results={"planner.1": OK, "x.1": PART, "y.1": PART, "assessor.1": OK}
)
STORIES = {"1-0": OF_THE_TREE, "1-0-x": OF_A_TEAM, "1-0-y": OF_A_TEAM}


def call(job: str, handoff: str) -> Call:
    return Call(CallKey(job, handoff, 1), "worker1", 1.0, out_at=1.5)


WITHIN = [call("1-0", handoff) for handoff in ("planner.1", "assessor.1")]
WITHIN += [
    call(team.name, handoff)
    for team in TEAMS
    for handoff in ("planner.1", "a.1", "b.1", "assessor.1")
]


def books(*more: Call, stories: dict[str, Story] = STORIES) -> Books:
    return Books([TREE], [*WITHIN, *more], [], stories, 3.0)


def test_a_tree_that_makes_as_many_calls_as_its_root_may_is_within_its_budget() -> None:
    found = books()

    assert found.made == found.needed == TIGHT_TREE_CALLS
    assert broken_of(found) == []
    assert json_of(found)["child_jobs"] == 2
    assert "| child jobs begun | 2 |" in table_of(found)


def test_an_overpayment_for_a_child_is_an_overrun_of_every_ancestor() -> None:
    assert books(call("1-0-x", "c.1")).overruns == ["1-0: 11 of 10 calls", "1-0-x: 5 of 4 calls"]
    roomy = {**STORIES, "1-0-x": replace(OF_A_TEAM, limits=JobLimits(max_turns=20))}
    assert books(call("1-0-x", "c.1"), stories=roomy).overruns == ["1-0: 11 of 10 calls"]


def test_a_child_has_the_slice_that_it_was_given_and_no_more() -> None:
    narrow = {**STORIES, "1-0-y": replace(OF_A_TEAM, limits=JobLimits(max_turns=3))}

    assert books(stories=narrow).overruns == ["1-0-y: 4 of 3 calls"]
