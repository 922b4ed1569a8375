"""An adaptive job: when its plan is reviewed, the changes of a patch, and the end of the changes."""

from __future__ import annotations

from typing import Any

from handoff_queue.shared.types.events import JobStatus, PlanPatched, RetryRequested, SecondChance
from handoff_queue.shared.types.handoff import StopReason
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals, Mode
from handoff_queue.shared.types.limits import JobLimits, OnLimit
from handoff_queue.shared.types.plan import OnFailure, Patch, Plan, Repeat, Step
from handoff_queue.supervisor.lifecycle.answer import assemble, results_for_answer
from handoff_queue.supervisor.lifecycle.commands import (
    Command,
    IssueGroup,
    IssueRole,
    PatchPlan,
    TryAgain,
)
from tests.doubles.lifecycle_commands import given_up, group
from tests.doubles.simulated_job import SimulatedJob, planned

LOOK = IssueRole("replanner", 1)


def adaptive(
    limits: JobLimits | None = None, /, approvals: Approvals | None = None, **plan: str
) -> SimulatedJob:
    """Return a job whose first steps are issued."""
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


def after(job: SimulatedJob, *finished: str, **changes: Any) -> list[Command]:
    for step in finished:
        job.finish(step, **changes)
    return job.advance()


def replanned(job: SimulatedJob, patch: Patch | None = None, **how: Any) -> list[Command]:
    job.patch_plan(patch, **how)
    return job.advance()


def latest(job: SimulatedJob) -> PlanPatched:
    made: PlanPatched = job.events(PlanPatched)[-1]
    return made


def notes_of(job: SimulatedJob) -> tuple[str, ...]:
    return assemble(job.state, JobStatus.OK, job.texts, None).notes


def test_the_plan_is_reviewed_after_each_chord() -> None:
    job = adaptive(a="", b="")

    assert after(job, "a") == []
    assert after(job, "b") == [LOOK]
    assert replanned(job) == [PatchPlan(latest(job).result), IssueRole("assessor", 1)]


def test_a_patchs_new_step_begins_at_once_with_its_inputs() -> None:
    job = adaptive(a="")
    after(job, "a")

    assert replanned(job, Patch(add=(a_step("x", "a"), a_step("y", "a"), a_step("z", "x"))))[
        1:
    ] == [group("g2", "x"), group("g3", "y")]
    assert [one.step_id for one in job.handoffs["x.1"].context] == ["a"]


def test_unblocked_steps_begin_while_the_replanner_runs() -> None:
    job = adaptive(a="", b="a")

    assert after(job, "a") == [group("g2", "b"), LOOK]


def test_results_that_arrived_while_the_replanner_ran_are_reviewed_next() -> None:
    job = adaptive(a="", b="a")
    after(job, "a")
    assert after(job, "b") == []

    assert replanned(job)[1:] == [IssueRole("replanner", 2)]
    assert replanned(job)[1:] == [IssueRole("assessor", 1)]


def test_a_step_that_began_in_between_is_not_changed_or_dropped() -> None:
    job = adaptive(a="", b="a", c="b")
    after(job, "a")
    replanned(job, Patch(add=(a_step("x", "a"),), change=(a_step("c", "a"),), drop=(StepId("b"),)))

    made = latest(job)
    assert (made.too_late, made.dropped, [one.id for one in made.changed]) == (("b",), (), ["c"])
    assert job.state.steps.keys() == {"a", "b", "c", "x"}


def test_an_outdated_patch_changes_nothing_and_the_job_continues() -> None:
    job = adaptive(a="", b="a", c="b")
    after(job, "a")
    replanned(job, Patch(add=(a_step("x", "nowhere"),)))

    assert (latest(job).plan, latest(job).problem) == (
        None,
        "its patch does not fit the plan any more",
    )
    assert job.open_names == {"b"}


def test_a_replanner_that_failed_leaves_the_plan_as_it_was() -> None:
    job = adaptive(a="")
    after(job, "a")

    assert replanned(job, status="failed")[1:] == [IssueRole("assessor", 1)]
    assert latest(job).problem == "the replanner failed"


def test_the_answer_reports_a_failed_replanning_and_its_reason() -> None:
    job = adaptive(a="")
    after(job, "a")
    replanned(job, status="failed")

    assert (
        "The plan was not changed after the results: the replanner failed (it broke)."
        in notes_of(job)
    )
    assert latest(job).result in results_for_answer(job.state)


def test_the_answer_does_not_report_a_replanning_without_changes() -> None:
    job = adaptive(a="")
    after(job, "a")
    replanned(job)

    assert notes_of(job) == ()


def test_a_final_patch_drops_unbegun_steps_and_the_replanner_is_not_asked_again() -> None:
    job = adaptive(a="", b="", c="b")
    job.finish("a")
    job.advance()
    replanned(job, Patch(finalize=True))

    assert job.state.steps.keys() == {"a", "b"}
    assert after(job, "b") == [IssueRole("assessor", 1)]


def test_a_step_with_a_failed_dependency_may_be_changed_before_it_is_given_up() -> None:
    job = adaptive(a="", b="a")
    assert after(job, "a", status="failed", stop_reason=StopReason.MODEL_ERROR) == [LOOK]

    assert replanned(job, Patch(change=(a_step("b"),)))[1:] == [group("g2", "b")]


def test_an_unchanged_step_with_a_failed_dependency_is_given_up() -> None:
    job = adaptive(a="", b="a")
    after(job, "a", status="failed", stop_reason=StopReason.MODEL_ERROR)

    assert replanned(job)[1] == given_up("everything that it depends on failed", "b")


def test_a_failure_with_another_attempt_is_no_news_yet() -> None:
    job = SimulatedJob(mode=Mode.ADAPTIVE)
    job.advance()
    job.make_plan(Plan(steps=(a_step("a").model_copy(update={"on_failure": OnFailure.RETRY}),)))
    job.advance()

    assert after(job, "a", status="failed") == [
        TryAgain((SecondChance(step=StepId("a")),)),
        group("g2", "a"),
    ]
    assert after(job, "a") == [LOOK]


def test_a_plan_changes_at_most_once_per_round_and_the_answer_says_so() -> None:
    job = adaptive(JobLimits(max_rounds=1), a="")
    after(job, "a")
    replanned(job, Patch(add=(a_step("x"),)))

    assert after(job, "x") == [IssueRole("assessor", 1)]
    assert "The plan was not changed any more: its limit of 1 rounds is reached." in notes_of(job)


def test_a_plan_with_the_maximum_of_steps_is_not_reviewed() -> None:
    job = adaptive(JobLimits(max_steps=1), a="")

    assert after(job, "a") == [IssueRole("assessor", 1)]
    assert (
        "The plan was not changed any more: it has 1 steps, and its limits allow no more."
        in notes_of(job)
    )


def test_a_replanner_that_only_repeats_earlier_work_is_not_asked_again() -> None:
    job = adaptive(a="", b="a")
    after(job, "a")
    replanned(job, Patch(repeats=(Repeat(step=StepId("x"), earlier=StepId("a")),)))

    assert after(job, "b") == [IssueRole("assessor", 1)]
    assert (
        "The plan was not changed any more: the replanner asked for the same work again (x is a)."
        in notes_of(job)
    )


def test_a_replanner_with_new_work_next_to_a_repeat_gets_it_and_is_asked_again() -> None:
    job = adaptive(a="")
    after(job, "a")
    replanned(
        job, Patch(add=(a_step("y"),), repeats=(Repeat(step=StepId("x"), earlier=StepId("a")),))
    )

    assert after(job, "y") == [IssueRole("replanner", 2)]


def test_without_time_or_money_the_replanner_is_not_asked() -> None:
    job = adaptive(a="")
    job.now = job.state.working_deadline
    assert IssueRole("replanner", 1) not in after(job, "a")

    job = adaptive(a="")
    assert after(job, "a", status="partial", stop_reason=StopReason.JOB_BUDGET) == [
        IssueRole("assessor", 1)
    ]


def test_a_replanning_that_the_budget_stopped_is_repeated_with_a_larger_budget() -> None:
    job = adaptive(JobLimits(on_limit=OnLimit.ASK, max_turns=3), a="")
    after(job, "a")
    job.finish("replanner", "failed", stop_reason=StopReason.JOB_BUDGET)
    job.advance()
    job.append(RetryRequested(max_turns=9))

    assert job.advance() == [IssueRole("replanner", 2)]


def test_an_endless_revise_ends_as_in_a_team() -> None:
    job = adaptive(a="")
    after(job, "a")
    replanned(job)
    for _ in range(2):
        job.review(a="wrong")
        job.advance()
        after(job, "a")
        replanned(job)
    job.review(a="wrong")
    job.advance()

    assert (job.state.status, len(job.state.rounds)) == (JobStatus.PARTIAL, 3)


def test_a_patch_of_an_approved_plan_is_not_asked_about() -> None:
    job = adaptive(approvals=Approvals(what=(ApprovalOf.PLAN,)), a="")
    job.approve()
    job.advance()
    after(job, "a")

    assert [type(one) for one in replanned(job, Patch(add=(a_step("x"),)))] == [
        PatchPlan,
        IssueGroup,
    ]


def test_a_rejected_plan_is_planned_again_and_stays_adaptive() -> None:
    job = adaptive(approvals=Approvals(what=(ApprovalOf.PLAN,)), a="")
    job.reject("No.")

    assert job.advance() == [IssueRole("planner", 2)]
    assert job.state.mode is Mode.ADAPTIVE


def test_a_retried_job_may_be_changed_again() -> None:
    job = adaptive(JobLimits(max_rounds=1), a="")
    after(job, "a")
    replanned(job, Patch(add=(a_step("x"),)))
    after(job, "x", status="partial")
    job.review()
    job.advance()
    job.synthesize()
    job.advance()
    job.append(RetryRequested())
    job.advance()

    assert after(job, "x") == [IssueRole("replanner", 2)]


def test_a_teams_plan_runs_unchanged() -> None:
    job = planned(a="", b="a")
    assert after(job, "a") == [group("g2", "b")]
    assert after(job, "b") == [IssueRole("assessor", 1)]
