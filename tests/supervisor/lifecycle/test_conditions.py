"""A step with a condition starts if the condition is met, and is skipped if it is not. It fails if
the results do not decide it.
"""

from __future__ import annotations

from typing import Any

import pytest

from handoff_queue.shared.types.condition_syntax import When
from handoff_queue.shared.types.events import (
    ConditionsChecked,
    HandoffIssued,
    JobStatus,
    RetryRequested,
)
from handoff_queue.shared.types.handoff import ResultStatus
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.plan_validation import find_problems_by_step
from handoff_queue.shared.types.step import Join, Step
from handoff_queue.supervisor.lifecycle.answer import find_usable_sinks
from handoff_queue.supervisor.lifecycle.decide import ALL_SKIPPED
from handoff_queue.supervisor.lifecycle.gaps import find_gaps
from handoff_queue.supervisor.lifecycle.reduce import fold
from handoff_queue.supervisor.lifecycle.side_effects import list_reviewed_steps
from handoff_queue.supervisor.lifecycle.state import StepStatus
from handoff_queue.supervisor.lifecycle.step_conditions import CONFIDENCE, with_confidence
from tests.doubles.handoffs import JOB
from tests.doubles.simulated_job import SimulatedJob, a_plan

IS_REFUND = 'triage.output.category == "refund"'


def condition_of(text: str, *steps: str, item: str | dict[str, str] | None = None) -> When:
    return When(text=text, steps={name: StepId(name) for name in steps}, item=item)


def plan_with(marks: dict[str, dict[str, Any]], /, **depends_on: str) -> Plan:
    """Return a plan. `marks` holds extra fields of single steps."""
    plan = a_plan(**depends_on)
    steps = tuple(step.model_copy(update=marks.get(step.id, {})) for step in plan.steps)
    return Plan.model_validate({**dict(plan), "steps": steps})


def branching_plan() -> Plan:
    """Return a plan: `triage`, then `refund` or `explain`, then `close`."""
    return plan_with(
        {
            "refund": {"when": condition_of(IS_REFUND, "triage")},
            "explain": {"when": condition_of(f"not ({IS_REFUND})", "triage")},
        },
        triage="",
        refund="triage",
        explain="triage",
        close="refund explain",
    )


def make_job(plan: Plan, **submitted: Any) -> SimulatedJob:
    job = SimulatedJob(**submitted)
    job.advance()
    job.make_plan(plan)
    job.advance()
    return job


def finish_triage(job: SimulatedJob, **output: Any) -> None:
    job.finish("triage", output=output or {"category": "refund"})
    job.advance()


def test_the_branch_with_a_met_condition_begins_and_the_other_is_skipped() -> None:
    job = make_job(branching_plan())
    finish_triage(job, category="refund")

    assert job.open_names == {"refund"}
    assert job.step("explain").is_skipped
    assert job.failure_reason("explain") == (
        'its condition is not met: not (triage.output.category == "refund")'
        ' (triage.output.category is "refund")'
    )


def test_a_step_continues_without_a_skipped_dependency_and_sees_only_existing_results() -> None:
    job = make_job(branching_plan())
    finish_triage(job)
    job.finish("refund")
    job.advance()

    assert job.open_names == {"close"}
    assert [result.step_id for result in job.handoffs["close.1"].context] == ["refund"]
    assert "Not here" not in job.handoffs["close.1"].task_description


def test_a_job_with_skipped_steps_is_ok_and_has_no_gaps() -> None:
    job = make_job(branching_plan())
    finish_triage(job)
    for name in ("refund", "close"):
        job.finish(name)
        job.advance()
    job.review()
    job.advance()

    assert job.state.status is JobStatus.OK
    assert find_gaps(job.state, job.texts) == ()
    assert "explain" not in list_reviewed_steps(job.state)


def test_a_step_with_only_skipped_dependencies_is_skipped_with_its_dependents() -> None:
    plan = plan_with(
        {"refund": {"when": condition_of(IS_REFUND, "triage")}},
        triage="",
        refund="triage",
        book="refund",
        tell="book",
    )
    job = make_job(plan)
    finish_triage(job, category="question")

    assert [job.step(name).is_skipped for name in ("refund", "book", "tell")] == [True] * 3
    assert job.failure_reason("tell") == ALL_SKIPPED
    assert find_usable_sinks(job.state) == ("triage",)


def test_a_step_with_a_skipped_and_a_failed_dependency_is_a_gap() -> None:
    plan = plan_with(
        {"refund": {"when": condition_of(IS_REFUND, "triage")}},
        triage="",
        look="",
        refund="triage",
        close="refund look",
    )
    job = make_job(plan)
    finish_triage(job, category="question")
    job.finish("look", "failed")
    job.advance()

    assert job.step("close").result_status is ResultStatus.FAILED


def test_a_join_that_must_have_a_skipped_step_is_skipped() -> None:
    plan = plan_with(
        {
            "refund": {"when": condition_of(IS_REFUND, "triage")},
            "close": {"join": Join(must=(StepId("refund"),))},
        },
        triage="",
        refund="triage",
        close="triage refund",
    )
    job = make_job(plan)
    finish_triage(job, category="question")

    assert job.step("close").is_skipped


def test_a_skipped_sink_does_not_make_the_step_before_it_part_of_the_answer() -> None:
    plan = plan_with(
        {"refund": {"when": condition_of(IS_REFUND, "triage")}},
        triage="",
        refund="triage",
        report="",
    )
    job = make_job(plan)
    job.finish("report")
    finish_triage(job, category="question")

    assert find_usable_sinks(job.state) == ("report",)


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ({"label": "refund"}, "triage.output has no field 'category' (known: label)"),
        ("A refund.", "triage.output is \"A refund.\", which has no 'category'"),
    ],
)
def test_a_result_that_lacks_the_field_fails_the_step_and_names_it(output: Any, why: str) -> None:
    plan = plan_with(
        {"refund": {"when": condition_of(IS_REFUND, "triage")}},
        triage="",
        refund="triage",
        close="refund",
    )
    job = make_job(plan)
    job.finish("triage", output=output)
    job.advance()
    job.review()
    job.advance()

    assert job.failure_reason("refund") == f"its condition can't be decided: {why}"
    assert job.step("refund").result_status is ResultStatus.FAILED
    assert job.state.status is JobStatus.PARTIAL
    assert not any(issued.step_id == "refund" for issued in job.events(HandoffIssued))


def test_each_copy_of_a_repeated_step_is_decided_by_its_own_item() -> None:
    amounts = {"pay_0001": "20", "pay_0002": "900", "pay_0003": "n/a"}
    marks = {
        name: {"when": condition_of("item.amount <= 500", item={"amount": amount})}
        for name, amount in amounts.items()
    }
    job = make_job(plan_with(marks, **dict.fromkeys(amounts, "")))

    assert job.open_names == {"pay_0001"}
    assert job.failure_reason("pay_0002") == (
        'its condition is not met: item.amount <= 500 (item.amount is "900")'
    )
    assert job.step("pay_0003").result_status is ResultStatus.FAILED
    assert len(job.events(ConditionsChecked)) == 1


def test_a_condition_is_checked_again_when_a_step_before_it_is_done_again() -> None:
    job = make_job(branching_plan())
    finish_triage(job, category="question")
    job.finish("explain")
    job.advance()
    job.finish("close")
    job.advance()
    job.review(triage="It is a refund.")
    job.advance()
    assert job.open_names == {"triage"}
    finish_triage(job, category="refund")

    assert job.open_names == {"refund"}
    assert job.step("explain").is_skipped


def test_a_second_chance_does_not_check_the_condition_again() -> None:
    job = make_job(branching_plan())
    finish_triage(job)
    before = len(job.events(ConditionsChecked))
    job.finish("refund", "failed")
    job.advance()

    assert len(job.events(ConditionsChecked)) == before


def test_a_retry_leaves_skipped_steps_as_they_are() -> None:
    job = make_job(branching_plan())
    finish_triage(job)
    job.finish("refund")
    job.advance()
    job.finish("close", "failed")
    job.advance()
    job.review()
    job.advance()
    assert job.state.status is JobStatus.PARTIAL
    job.append(RetryRequested())
    job.advance()

    assert (job.open_names, job.step("explain").is_skipped) == ({"close"}, True)


def test_conditions_wait_for_the_approval_of_the_plan() -> None:
    plan = plan_with({"a": {"when": condition_of("item == 'x'", item="x")}}, a="")
    job = make_job(plan, approvals=Approvals(what=(ApprovalOf.PLAN,)))

    assert job.state.question is not None
    assert job.events(ConditionsChecked) == []
    job.approve()
    job.advance()
    assert job.open_names == {"a"}


def test_a_job_with_only_skipped_steps_says_so() -> None:
    plan = plan_with({"a": {"when": condition_of("item == 'x'", item="y")}}, a="")
    job = make_job(plan)

    assert job.state.ended is not None
    assert (job.state.ended.status, job.state.ended.reason) == (
        JobStatus.FAILED,
        "every step was skipped: no condition was met",
    )


def test_the_decision_is_in_the_journal_and_another_supervisor_does_not_decide_again() -> None:
    job = make_job(branching_plan())
    finish_triage(job, category="question")
    again = fold(job.state.job_id, None, job.journal)

    assert again == job.state
    assert job.state.job_id == JOB
    assert job.next_commands() == ()
    assert again is not None
    assert again.steps[StepId("refund")].status is StepStatus.SETTLED


def test_a_plan_with_a_condition_over_a_step_that_it_does_not_depend_on_is_refused() -> None:
    step = Step(
        id=StepId("a"), specialist="writer", task="Do a.", when=condition_of("b.output.x == 1", "b")
    )
    messages = [problem.text for problem in find_problems_by_step([step, *a_plan(b="").steps])]

    assert messages == ["the condition of step a names b, which it does not depend on"]


def test_only_a_step_whose_confidence_a_condition_reads_is_asked_for_it() -> None:
    plan = plan_with(
        {"refund": {"when": condition_of("triage.confidence > 0.5", "triage")}},
        triage="",
        refund="triage",
    )
    asked, not_asked = plan.steps
    assert with_confidence(plan, asked) == f"{asked.task}\n\n{CONFIDENCE}"
    assert with_confidence(plan, not_asked) == not_asked.task


def test_the_last_steps_of_a_child_job_are_asked_for_the_confidence_that_its_parent_reads() -> None:
    plan = plan_with({}, search="", write="search")
    search, write = plan.steps
    request = f"Write a page.\n\n{CONFIDENCE}"
    assert with_confidence(plan, write, request) == f"{write.task}\n\n{CONFIDENCE}"
    assert with_confidence(plan, search, request) == search.task
    assert with_confidence(plan, write, "Write a page.") == write.task
    only = write.model_copy(update={"task": request})
    assert with_confidence(plan, only, request) == request
