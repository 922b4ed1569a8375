"""An adaptive job reviews its plan, applies patches, and stops at its limits."""

from __future__ import annotations

from typing import Any

from handoff_queue.shared.types.events import JobStatus, PlanPatched, RetryRequested, StepRetry
from handoff_queue.shared.types.handoff import GivenResult, ResultStatus, StopReason, make_ref
from handoff_queue.shared.types.ids import StepId, build_handoff_id
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals, Mode
from handoff_queue.shared.types.limits import JobLimits, OnLimit
from handoff_queue.shared.types.names import Role
from handoff_queue.shared.types.plan import Patch, Plan, Repeat
from handoff_queue.shared.types.step import Join, OnFailure, Step
from handoff_queue.supervisor.lifecycle.answer import assemble, list_results_for_answer
from handoff_queue.supervisor.lifecycle.commands import (
    Command,
    IssueGroup,
    IssueRole,
    PatchPlan,
    TryAgain,
)
from tests.doubles.lifecycle_commands import given_up, group
from tests.doubles.results import a_result_of
from tests.doubles.simulated_job import SimulatedJob, planned

ASK_REPLANNER = IssueRole(Role.REPLANNER, 1)


def adaptive_job(
    limits: JobLimits | None = None, /, approvals: Approvals | None = None, **plan: str
) -> SimulatedJob:
    """Return an adaptive job whose first steps are issued."""
    job = SimulatedJob(limits, mode=Mode.ADAPTIVE, approvals=approvals or Approvals())
    job.advance()
    job.make_plan(**plan)
    job.advance()
    return job


def a_step(name: str, *depends_on: str) -> Step:
    return Step(
        id=StepId(name),
        specialist="researcher",
        task=f"Do {name}.",
        depends_on=tuple(map(StepId, depends_on)),
    )


def commands_after(job: SimulatedJob, *finished: str, **changes: Any) -> list[Command]:
    for step in finished:
        job.finish(step, **changes)
    return job.advance()


def apply_patch(
    job: SimulatedJob, patch: Patch | None = None, **patch_fields: Any
) -> list[Command]:
    job.patch_plan(patch, **patch_fields)
    return job.advance()


def latest_patch(job: SimulatedJob) -> PlanPatched:
    patched: PlanPatched = job.events(PlanPatched)[-1]
    return patched


def notes_of(job: SimulatedJob) -> tuple[str, ...]:
    return assemble(job.state, JobStatus.OK, job.texts, None).notes


def test_the_plan_is_reviewed_after_each_chord() -> None:
    job = adaptive_job(a="", b="")

    assert commands_after(job, "a") == []
    assert commands_after(job, "b") == [ASK_REPLANNER]
    assert apply_patch(job) == [PatchPlan(latest_patch(job).result), IssueRole(Role.ASSESSOR, 1)]


def test_a_patchs_new_step_begins_at_once_with_its_inputs() -> None:
    job = adaptive_job(a="")
    commands_after(job, "a")

    assert apply_patch(job, Patch(add=(a_step("x", "a"), a_step("y", "a"), a_step("z", "x"))))[
        1:
    ] == [group("g2", "x"), group("g3", "y")]
    assert [result.step_id for result in job.handoffs["x.1"].context] == ["a"]


def test_unblocked_steps_begin_while_the_replanner_runs() -> None:
    job = adaptive_job(a="", b="a")

    assert commands_after(job, "a") == [group("g2", "b"), ASK_REPLANNER]


def test_results_that_arrived_while_the_replanner_ran_are_reviewed_next() -> None:
    job = adaptive_job(a="", b="a")
    commands_after(job, "a")
    assert commands_after(job, "b") == []

    assert apply_patch(job)[1:] == [IssueRole(Role.REPLANNER, 2)]
    assert apply_patch(job)[1:] == [IssueRole(Role.ASSESSOR, 1)]


def test_a_step_that_began_in_between_is_not_changed_or_dropped() -> None:
    job = adaptive_job(a="", b="a", c="b")
    commands_after(job, "a")
    apply_patch(
        job, Patch(add=(a_step("x", "a"),), change=(a_step("c", "a"),), drop=(StepId("b"),))
    )

    patched = latest_patch(job)
    assert (patched.too_late, patched.dropped, [change.id for change in patched.changed]) == (
        ("b",),
        (),
        ["c"],
    )
    assert job.state.steps.keys() == {"a", "b", "c", "x"}


def test_an_outdated_patch_changes_nothing_and_the_job_continues() -> None:
    job = adaptive_job(a="", b="a", c="b")
    commands_after(job, "a")
    apply_patch(job, Patch(add=(a_step("x", "nowhere"),)))

    assert (latest_patch(job).plan, latest_patch(job).problem) == (
        None,
        "its patch does not fit the plan any more",
    )
    assert job.open_names == {"b"}


def test_a_replanner_that_failed_leaves_the_plan_as_it_was() -> None:
    job = adaptive_job(a="")
    commands_after(job, "a")

    assert apply_patch(job, status="failed")[1:] == [IssueRole(Role.ASSESSOR, 1)]
    assert latest_patch(job).problem == "the replanner failed"


def test_the_answer_reports_a_failed_replanning_and_its_reason() -> None:
    job = adaptive_job(a="")
    commands_after(job, "a")
    apply_patch(job, status="failed")

    assert (
        "The plan was not changed after the results: the replanner failed (it broke)."
        in notes_of(job)
    )
    assert latest_patch(job).result in list_results_for_answer(job.state)


def test_the_answer_does_not_report_a_replanning_without_changes() -> None:
    job = adaptive_job(a="")
    commands_after(job, "a")
    apply_patch(job)

    assert notes_of(job) == ()


def test_a_final_patch_drops_unbegun_steps_and_the_replanner_is_not_asked_again() -> None:
    job = adaptive_job(a="", b="", c="b")
    job.finish("a")
    job.advance()
    apply_patch(job, Patch(finalize=True))

    assert job.state.steps.keys() == {"a", "b"}
    assert commands_after(job, "b") == [IssueRole(Role.ASSESSOR, 1)]


def test_a_final_patch_keeps_all_dependencies_of_a_step_that_was_abandoned() -> None:
    first_of_two = a_step("joined", "a", "late").model_copy(update={"join": Join(enough=1)})
    late = (a_step("c", "b"), a_step("d", "c"), a_step("late", "d"))
    steps = (a_step("a"), a_step("b"), *late, first_of_two)
    job = SimulatedJob(mode=Mode.ADAPTIVE)
    job.advance()
    job.make_plan(Plan(steps=(*steps, a_step("unneeded", "d"))))
    job.advance()
    commands_after(job, "a")

    apply_patch(job, Patch(finalize=True))

    assert latest_patch(job).dropped == ("unneeded",)
    assert latest_patch(job).problem is None


def test_a_final_patch_keeps_a_begun_step_that_depends_on_a_given_result() -> None:
    earlier = a_result_of(build_handoff_id("prev_a", 1), ResultStatus.OK)
    given = GivenResult(
        step=earlier.step_id, specialist="writer", result=make_ref(earlier.to_json())
    )
    job = SimulatedJob(mode=Mode.ADAPTIVE, given=(given,))
    job.advance()
    steps = (a_step("a", "prev_a"), a_step("b"), a_step("c", "b"))
    job.make_plan(Plan(steps=steps, given=(given.step,)))
    job.advance()
    commands_after(job, "a")

    apply_patch(job, Patch(finalize=True))

    assert latest_patch(job).dropped == ("c",)


def test_a_step_with_a_failed_dependency_may_be_changed_before_it_is_given_up() -> None:
    job = adaptive_job(a="", b="a")
    assert commands_after(job, "a", status="failed", stop_reason=StopReason.MODEL_ERROR) == [
        ASK_REPLANNER
    ]

    assert apply_patch(job, Patch(change=(a_step("b"),)))[1:] == [group("g2", "b")]


def test_an_unchanged_step_with_a_failed_dependency_is_given_up() -> None:
    job = adaptive_job(a="", b="a")
    commands_after(job, "a", status="failed", stop_reason=StopReason.MODEL_ERROR)

    assert apply_patch(job)[1] == given_up("everything that it depends on failed", "b")


def test_a_failure_with_another_attempt_is_not_news_yet() -> None:
    job = SimulatedJob(mode=Mode.ADAPTIVE)
    job.advance()
    job.make_plan(Plan(steps=(a_step("a").model_copy(update={"on_failure": OnFailure.RETRY}),)))
    job.advance()

    assert commands_after(job, "a", status="failed") == [
        TryAgain((StepRetry(step=StepId("a")),)),
        group("g2", "a"),
    ]
    assert commands_after(job, "a") == [ASK_REPLANNER]


def test_a_plan_changes_at_most_once_per_round_and_the_answer_says_so() -> None:
    job = adaptive_job(JobLimits(max_rounds=1), a="")
    commands_after(job, "a")
    apply_patch(job, Patch(add=(a_step("x"),)))

    assert commands_after(job, "x") == [IssueRole(Role.ASSESSOR, 1)]
    assert "The plan was not changed any more: its limit of 1 rounds is reached." in notes_of(job)


def test_a_plan_with_the_maximum_of_steps_is_not_reviewed() -> None:
    job = adaptive_job(JobLimits(max_steps=1), a="")

    assert commands_after(job, "a") == [IssueRole(Role.ASSESSOR, 1)]
    assert (
        "The plan was not changed any more: it has 1 steps, and its limits allow no more."
        in notes_of(job)
    )


def test_a_replanner_that_only_repeats_earlier_work_is_not_asked_again() -> None:
    job = adaptive_job(a="", b="a")
    commands_after(job, "a")
    apply_patch(job, Patch(repeats=(Repeat(step=StepId("x"), earlier=StepId("a")),)))

    assert commands_after(job, "b") == [IssueRole(Role.ASSESSOR, 1)]
    assert (
        "The plan was not changed any more: the replanner asked for the same work again (x is a)."
        in notes_of(job)
    )


def test_a_replanner_with_new_work_next_to_a_repeat_gets_it_and_is_asked_again() -> None:
    job = adaptive_job(a="")
    commands_after(job, "a")
    apply_patch(
        job, Patch(add=(a_step("y"),), repeats=(Repeat(step=StepId("x"), earlier=StepId("a")),))
    )

    assert commands_after(job, "y") == [IssueRole(Role.REPLANNER, 2)]


def test_without_time_or_money_the_replanner_is_not_asked() -> None:
    job = adaptive_job(a="")
    job.now = job.state.working_deadline
    assert IssueRole(Role.REPLANNER, 1) not in commands_after(job, "a")

    job = adaptive_job(a="")
    assert commands_after(job, "a", status="partial", stop_reason=StopReason.JOB_BUDGET) == [
        IssueRole(Role.ASSESSOR, 1)
    ]


def test_a_replanning_that_the_budget_stopped_is_repeated_with_a_larger_budget() -> None:
    job = adaptive_job(JobLimits(on_limit=OnLimit.ASK, max_turns=3), a="")
    commands_after(job, "a")
    job.finish("replanner", "failed", stop_reason=StopReason.JOB_BUDGET)
    job.advance()
    job.append(RetryRequested(max_turns=9))

    assert job.advance() == [IssueRole(Role.REPLANNER, 2)]


def test_an_endless_revise_ends_as_in_a_team() -> None:
    job = adaptive_job(a="")
    commands_after(job, "a")
    apply_patch(job)
    for _ in range(2):
        job.review(a="wrong")
        job.advance()
        commands_after(job, "a")
        apply_patch(job)
    job.review(a="wrong")
    job.advance()

    assert (job.state.status, len(job.state.rounds)) == (JobStatus.PARTIAL, 3)


def test_a_patch_of_an_approved_plan_is_not_asked_about() -> None:
    job = adaptive_job(approvals=Approvals(what=(ApprovalOf.PLAN,)), a="")
    job.approve()
    job.advance()
    commands_after(job, "a")

    assert [type(command) for command in apply_patch(job, Patch(add=(a_step("x"),)))] == [
        PatchPlan,
        IssueGroup,
    ]


def test_a_rejected_plan_is_planned_again_and_stays_adaptive() -> None:
    job = adaptive_job(approvals=Approvals(what=(ApprovalOf.PLAN,)), a="")
    job.reject("No.")

    assert job.advance() == [IssueRole(Role.PLANNER, 2)]
    assert job.state.mode is Mode.ADAPTIVE


def test_a_retried_job_may_be_changed_again() -> None:
    job = adaptive_job(JobLimits(max_rounds=1), a="")
    commands_after(job, "a")
    apply_patch(job, Patch(add=(a_step("x"),)))
    commands_after(job, "x", status="partial")
    job.review()
    job.advance()
    job.synthesize()
    job.advance()
    job.append(RetryRequested())
    job.advance()

    assert commands_after(job, "x") == [IssueRole(Role.REPLANNER, 2)]


def test_a_teams_plan_runs_unchanged() -> None:
    job = planned(a="", b="a")
    assert commands_after(job, "a") == [group("g2", "b")]
    assert commands_after(job, "b") == [IssueRole(Role.ASSESSOR, 1)]
