"""A job that follows another job starts with its results, under names that no step has."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.types.events import HandoffIssued, JobStatus
from handoff_queue.shared.types.handoff import (
    Citation,
    Claim,
    GivenResult,
    HandoffResult,
    ResultStatus,
    find_answers,
    make_ref,
)
from handoff_queue.shared.types.ids import StepId, build_handoff_id
from handoff_queue.shared.types.names import NAME_PATTERN
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.step import Step
from handoff_queue.supervisor.lifecycle.follow_up_jobs import (
    build_later_name,
    choose_results_to_give,
    copy_results,
)
from handoff_queue.supervisor.lifecycle.routing import build_plan_of_one_step
from tests.doubles.conflicting_claims import a_claim
from tests.doubles.results import a_result_of
from tests.doubles.simulated_job import SimulatedJob, a_plan, finish_steps, planned

NAMES = st.from_regex(re.compile(NAME_PATTERN), fullmatch=True).map(StepId)


def ended_job(**claims: Claim) -> SimulatedJob:
    """Return an ended job with the steps a, b (failed) and c. The result of c is the answer."""
    job = planned(a="", b="", c="a b")
    job.finish("a", output="It is 5 [a.c1].", claims=(a_claim("a.c1", "5", "km"),))
    job.finish("b", "failed", error="no")
    job.advance()
    job.finish(
        "c",
        output={"far": ["5 km [a.c1]", "[c.c1]"]},
        claims=(a_claim("a.c1", "5", "km"), a_claim("c.c1", "5", "km")),
    )
    job.advance()
    job.review()
    job.advance()
    assert job.state.status is JobStatus.PARTIAL
    return job


def copied_results(job: SimulatedJob) -> tuple[dict[str, GivenResult], dict[str, HandoffResult]]:
    items, texts = copy_results(job.state, job.texts)
    results = {make_ref(text).digest: HandoffResult.from_json(text) for text in texts}
    return {item.step: item for item in items}, {
        item.step: results[item.result.digest] for item in items
    }


def test_usable_results_are_given_and_the_answer_is_marked_as_answer() -> None:
    items, _ = copied_results(ended_job())

    assert {name: item.is_answer for name, item in items.items()} == {
        "prev_c": True,
        "prev_a": False,
    }
    assert find_answers(tuple(items.values())) == ("prev_c",)


def test_claims_and_markers_of_a_result_that_is_given_have_the_new_names() -> None:
    _, results = copied_results(ended_job())

    assert results["prev_a"].output == "It is 5 [prev_a.c1]."
    assert results["prev_c"].output == {"far": ["5 km [prev_a.c1]", "[prev_c.c1]"]}
    assert [claim.id for claim in results["prev_c"].claims] == ["prev_a.c1", "prev_c.c1"]
    assert (results["prev_c"].step_id, results["prev_c"].handoff_id) == ("prev_c", "prev_c.1")


def test_a_result_that_is_given_has_the_number_of_its_attempt() -> None:
    """Its readers must know that other results may have claims of an earlier attempt."""
    job = planned(a_plan(a=""))
    finish_steps(job, "a")
    job.review(a="It is not enough.")
    job.advance()
    finish_steps(job, "a")

    _, results = copied_results(job)

    assert (results["prev_a"].handoff_id, results["prev_a"].attempt) == ("prev_a.2", 2)


def test_tool_results_of_a_result_that_is_given_have_names_that_no_step_has() -> None:
    job = planned(a_plan(a=""))
    name = "tool:a.1/run_code#f8/my data.txt"
    citation = Citation(source=name, digest="0" * 64, start=0, end=1, quote="5")
    claim = Claim(id="a.c1", text="It is 5.", sources=(citation,))
    job.finish("a", output=f"It is 5 [a.c1]. See {name}.", claims=(claim,))
    job.advance()

    _, results = copied_results(job)

    later_name = "tool:prev_a.1/run_code#f8/my data.txt"
    assert results["prev_a"].output == f"It is 5 [prev_a.c1]. See {later_name}."
    assert results["prev_a"].claims[0].sources[0].source == later_name


def test_a_job_without_a_usable_result_gives_nothing() -> None:
    job = planned(a="")
    job.finish("a", "failed", error="no")
    job.advance()

    assert choose_results_to_give(job.state) == {}


@given(st.lists(NAMES, unique=True, max_size=20), st.integers(1, 4))
def test_two_names_stay_distinct_in_a_chain_of_follow_ups(names: list[StepId], times: int) -> None:
    handed_on = names
    for _ in range(times):
        handed_on = [build_later_name(name) for name in handed_on]

    assert len(set(handed_on)) == len(names)
    assert all(re.fullmatch(NAME_PATTERN, name) for name in handed_on)


def test_a_name_states_the_distance_to_the_earlier_job() -> None:
    assert [
        build_later_name(StepId("find")),
        build_later_name(build_later_name(StepId("find"))),
    ] == [
        "prev_find",
        "prev2_find",
    ]


def job_given(*names: str, **depends_on: str) -> SimulatedJob:
    """Return a job with these given results and this plan."""
    results = {name: a_result_of(build_handoff_id(name, 1), ResultStatus.OK) for name in names}
    known = tuple(
        GivenResult(
            step=StepId(name),
            specialist="writer",
            result=make_ref(result.to_json()),
            is_answer=True,
        )
        for name, result in results.items()
    )
    job = SimulatedJob(given=known)
    job.advance()
    steps = tuple(
        Step(
            id=StepId(name),
            specialist="researcher",
            task=f"Do {name}.",
            depends_on=tuple(map(StepId, before.split())),
        )
        for name, before in depends_on.items()
    )
    job.make_plan(Plan(steps=steps, given=tuple(item.step for item in known)))
    job.advance()
    return job


def test_a_step_that_depends_on_a_given_result_begins_at_once_with_it() -> None:
    job = job_given("prev_a", t="prev_a", u="t prev_a")

    assert job.open_names == {"t"}
    assert [result.step_id for result in job.handoffs["t.1"].context] == ["prev_a"]
    finish_steps(job, "t")
    assert [result.step_id for result in job.handoffs["u.1"].context] == ["t", "prev_a"]


def test_a_given_result_is_not_part_of_the_answer_by_itself() -> None:
    job = job_given("prev_a", t="")
    finish_steps(job, "t")
    job.review()
    job.advance()

    assert job.state.status is JobStatus.OK
    assert {event.step_id for event in job.events(HandoffIssued)} == {"planner", "t", "assessor"}
    assert job.state.sinks == ("t",)


def test_a_plan_knows_only_its_given_results() -> None:
    step = Step(id=StepId("t"), specialist="writer", task="Write.", depends_on=(StepId("prev_a"),))
    with pytest.raises(ValueError, match="depends on prev_a, which is not a step"):
        Plan(steps=(step,))
    assert Plan(steps=(step,), given=(StepId("prev_a"),)).sinks == ("t",)


def test_no_step_takes_the_name_of_an_existing_result() -> None:
    with pytest.raises(ValueError, match="step id a is the name of a result that is there already"):
        Plan(steps=a_plan(a="").steps, given=(StepId("a"),))


def test_a_single_specialist_gets_the_given_results_with_the_request() -> None:
    plan = build_plan_of_one_step("Now as a table.", "writer", "", (StepId("prev_c"),))

    assert plan.steps[0].depends_on == ("prev_c",)
