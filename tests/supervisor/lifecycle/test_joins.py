"""A join continues with the results that it needs, and gives up late or useless parts."""

from __future__ import annotations

from typing import Any

import pytest

from handoff_queue.shared.types.events import ApprovalAsked, CountedFanIn, JobStatus, RetryRequested
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import ApprovalOf
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.plan_validation import find_join_problems
from handoff_queue.shared.types.step import Join, OnFailure
from handoff_queue.shared.types.usage import Usage
from handoff_queue.supervisor.lifecycle.gaps import compute_likely_costs, find_gaps, to_finish
from handoff_queue.supervisor.lifecycle.job_end import compute_next_due
from handoff_queue.supervisor.lifecycle.joins import list_counted_fan_ins
from tests.doubles.simulated_job import LEASE_S, SimulatedJob, a_plan

USAGE = Usage(input_tokens=10, output_tokens=1, cost_microusd=300)


def job_with_joins(
    plan: Plan,
    /,
    *,
    last: Join | None = None,
    on_failure: OnFailure = OnFailure.DROP,
    **joins: Join,
) -> SimulatedJob:
    """Return a job with this plan and these joins. Its first steps are issued."""
    changed = tuple(
        step.model_copy(update={"join": joins.get(step.id), "on_failure": on_failure})
        for step in plan.steps
    )
    job = SimulatedJob()
    job.advance()
    job.make_plan(plan.model_copy(update={"steps": changed, "join": last}))
    job.advance()
    return job


def job_joining_three(**join: Any) -> SimulatedJob:
    """Return a job whose step d joins a, b and c."""
    return job_with_joins(a_plan(a="", b="", c="", d="a b c"), d=Join(**join))


def finish_in_order(job: SimulatedJob, *steps: str, status: str = "ok") -> None:
    for step in steps:
        job.finish(step, status, usage=USAGE, error="no" if status == "failed" else None)
        job.advance()


def test_with_enough_results_a_join_continues_at_once_and_gives_up_late_parts() -> None:
    job = job_joining_three(enough=2)
    finish_in_order(job, "a")
    assert job.open_names == {"b", "c"}

    finish_in_order(job, "b")

    assert job.open_names == {"d"}
    assert job.failure_reason("c") == "not waited for: 2 of 3 results were enough for d"


def test_the_specialist_knows_the_late_parts() -> None:
    job = job_joining_three(enough=2)
    finish_in_order(job, "a", "b")

    handed_over = job.handoffs["d.1"]
    assert [result.step_id for result in handed_over.context] == ["a", "b", "c"]
    assert job.texts.get_result(handed_over.context[2].result).error == job.failure_reason("c")


def test_a_failure_does_not_count_as_enough() -> None:
    job = job_joining_three(enough=2)
    finish_in_order(job, "a", status="failed")
    finish_in_order(job, "b")
    assert job.open_names == {"c"}

    finish_in_order(job, "c")
    assert job.open_names == {"d"}


def test_an_unbegun_part_is_given_up_with_its_dependencies() -> None:
    job = job_with_joins(a_plan(a="", b="", slow="", later="slow", d="a b later"), d=Join(enough=2))
    finish_in_order(job, "a", "b")

    assert job.open_names == {"d"}
    assert {name for name in ("slow", "later") if job.failure_reason(name)} == {"slow", "later"}


def test_a_part_that_another_step_needs_is_not_given_up() -> None:
    job = job_with_joins(a_plan(a="", b="", d="a b", e="b"), d=Join(enough=1))
    finish_in_order(job, "a")
    assert job.open_names == {"b", "d"}
    assert [result.step_id for result in job.handoffs["d.1"].context] == ["a"]
    assert "Not here, and not waited for: b." in job.handoffs["d.1"].task_description

    finish_in_order(job, "b")
    assert job.open_names == {"d", "e"}


def test_a_required_part_is_awaited_even_with_enough_others() -> None:
    job = job_joining_three(enough=1, must=(StepId("c"),))
    finish_in_order(job, "a", "b")
    assert job.open_names == {"c"}

    finish_in_order(job, "c")
    assert job.open_names == {"d"}


def test_without_a_required_part_the_join_is_given_up_at_once() -> None:
    job = job_joining_three(must=(StepId("c"),))
    finish_in_order(job, "c", status="failed")

    assert job.failure_reason("d") == "it must have c, which failed"
    assert job.open_names == {"a", "b"}


def test_a_join_that_can_no_longer_get_enough_results_is_given_up() -> None:
    job = job_joining_three(at_least=2)
    finish_in_order(job, "a", "b", status="failed")

    assert job.failure_reason("d") == "it needs at least 2 results, and only 1 can still be there"


def test_at_the_end_of_its_time_a_join_continues_with_its_results() -> None:
    job = job_joining_three(within_s=60)
    job.now += 10
    finish_in_order(job, "a")
    assert compute_next_due(job.state, job.now, LEASE_S) == pytest.approx(job.now + 50), (
        "a sweeper looks then"
    )

    job.now += 50
    job.advance()

    assert job.open_names == {"d"}
    assert job.failure_reason("b") == "not waited for: 1 of 3 results were there after 60 s for d"


def test_at_the_end_of_its_time_a_join_with_too_few_results_takes_the_next_one() -> None:
    job = job_joining_three(within_s=60, at_least=2)
    finish_in_order(job, "a")
    job.now += 61
    assert job.advance() == []

    finish_in_order(job, "c")
    assert job.open_names == {"d"}


def test_its_time_begins_with_the_first_of_its_parts() -> None:
    job = job_with_joins(a_plan(before="", a="before", b="before", d="a b"), d=Join(within_s=60))
    job.now += 1_000
    finish_in_order(job, "before")
    finish_in_order(job, "a")
    assert job.open_names == {"b"}


def test_revised_work_gets_the_whole_time_again() -> None:
    job = job_joining_three(within_s=60)
    finish_in_order(job, "a", "b", "c")
    job.now += 100
    finish_in_order(job, "d")
    job.review(b="wrong")
    job.advance()
    job.now += 50
    assert job.advance() == []
    assert job.open_names == {"b"}

    job.now += 10
    job.advance()
    assert job.open_names == {"d"}
    assert job.step("b").is_usable, "its earlier result is better than none"


def test_the_answer_can_do_with_some_of_the_last_steps() -> None:
    job = job_with_joins(a_plan(a="", b="", c=""), last=Join(enough=2))
    finish_in_order(job, "a", "c")
    job.review()
    job.advance()

    assert job.state.status is JobStatus.PARTIAL
    assert job.failure_reason("b") == "not waited for: 2 of 3 results were enough for the answer"


def test_a_late_step_gets_no_second_chance() -> None:
    job = job_with_joins(a_plan(a="", b="", d="a b"), d=Join(enough=1), on_failure=OnFailure.RETRY)
    job.finish("b", "failed", error="no")
    job.finish("a")
    job.advance()

    assert job.open_names == {"d"}
    assert job.step("b").attempt == 1


@pytest.mark.parametrize(
    ("join", "wakes_from"),
    [
        ({"enough": 2}, 2),
        ({}, 3),
        ({"within_s": 60}, 1),
        ({"within_s": 60, "enough": 3, "at_least": 2}, 2),
    ],
)
def test_the_supervisor_is_woken_from_the_first_sufficient_result(
    join: dict[str, Any], wakes_from: int
) -> None:
    job = job_joining_three(**join)

    assert list_counted_fan_ins(job.state, frozenset({StepId("d")})) == (
        CountedFanIn(fan_in="d", wakes_from=wakes_from),
    )
    assert list_counted_fan_ins(job.state, frozenset()) == (), (
        "the answer waits for all of its parts"
    )


def test_finish_runs_the_late_parts_and_their_dependents_only() -> None:
    job = job_joining_three(enough=2)
    finish_in_order(job, "a", "b", "d")
    job.review()
    job.advance()
    job.append(RetryRequested(fills_gaps=True))
    job.advance()
    assert job.open_names == {"c"}
    finish_in_order(job, "c", "d")
    job.review()
    job.advance()

    assert job.state.status is JobStatus.OK
    assert [job.step(name).attempt for name in "abcd"] == [1, 1, 2, 2]


def test_a_gap_states_its_cost() -> None:
    job = job_joining_three(enough=2)
    finish_in_order(job, "a", "b", "d")

    (gap,) = find_gaps(job.state, job.texts)
    assert (gap.step, gap.likely_microusd) == ("c", 300)
    assert to_finish(job.state) == 600, "c, and d again"


def test_a_price_that_is_not_known_is_not_guessed() -> None:
    job = job_joining_three(enough=2)
    for step in ("a", "b"):
        job.finish(step, usage=USAGE.model_copy(update={"cost_microusd": None}))
    job.advance()

    assert compute_likely_costs(job.state).get_mean_cost("researcher") is None
    assert to_finish(job.state) is None


@pytest.mark.parametrize(
    ("join", "problem"),
    [
        ({"enough": 4}, "needs 4 results of 3: lower the number"),
        ({"at_least": 4}, "needs 4 results of 3: lower the number"),
        (
            {"enough": 1, "at_least": 2},
            "has `enough` 1 below `at_least` 2: raise `enough`, or lower `at_least`",
        ),
        (
            {"must": ("x",)},
            "must have x, which is not one of its steps (a, b, c)",
        ),
    ],
)
def test_a_join_that_makes_no_sense_is_named(join: dict[str, Any], problem: str) -> None:
    assert find_join_problems(Join(**join), [StepId(name) for name in "abc"]) == [problem]


def test_a_join_needs_something_to_wait_for() -> None:
    with pytest.raises(ValueError, match="the join of step a needs a dependency"):
        Plan(steps=(a_plan(a="").steps[0].model_copy(update={"join": Join()}),))


def test_numbers_that_a_person_typed_into_a_plan_are_numbers() -> None:
    assert Join.from_value({"enough": "2", "within_s": "60"}) == Join(enough=2, within_s=60)


def test_the_time_that_a_person_takes_is_not_part_of_a_joins() -> None:
    job = job_with_joins(a_plan(a="", x="", b="x", d="a b"), d=Join(within_s=60))
    finish_in_order(job, "a")
    job.append(ApprovalAsked(what=ApprovalOf.COST, why="dear", wait_s=10_000))
    job.now += 3_600
    job.approve()
    job.advance()
    finish_in_order(job, "x")

    assert job.open_names == {"b"}


def test_the_dependents_are_computed_once_for_a_plan() -> None:
    job = job_joining_three(enough=2)

    assert job.state.dependents is job.state.dependents
