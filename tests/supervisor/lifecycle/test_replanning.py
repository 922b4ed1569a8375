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
from tests.doubles.life import Life, planned
from tests.doubles.orders import given_up, group

LOOK = IssueRole("replanner", 1)


def adaptive(
    limits: JobLimits | None = None, /, approvals: Approvals | None = None, **plan: str
) -> Life:
    """Its first steps are out."""
    life = Life(limits, mode=Mode.ADAPTIVE, approvals=approvals or Approvals())
    life.goes_on()
    life.plans(**plan)
    life.goes_on()
    return life


def a_step(name: str, *depends_on: str) -> Step:
    return Step(
        id=StepId(name),
        specialist="researcher",
        task=f"Do {name}.",
        depends_on=tuple(map(StepId, depends_on)),
    )


def after(life: Life, *finished: str, **changes: Any) -> list[Command]:
    for step in finished:
        life.finishes(step, **changes)
    return life.goes_on()


def replanned(life: Life, patch: Patch | None = None, **how: Any) -> list[Command]:
    life.replans(patch, **how)
    return life.goes_on()


def latest(life: Life) -> PlanPatched:
    made: PlanPatched = life.events(PlanPatched)[-1]
    return made


def notes_of(life: Life) -> tuple[str, ...]:
    return assemble(life.state, JobStatus.OK, life.words, None).notes


def test_the_plan_is_looked_at_again_when_a_chord_is_in() -> None:
    life = adaptive(a="", b="")

    assert after(life, "a") == []
    assert after(life, "b") == [LOOK]
    assert replanned(life) == [PatchPlan(latest(life).result), IssueRole("assessor", 1)]


def test_what_a_patch_adds_begins_at_once_with_what_it_builds_on() -> None:
    life = adaptive(a="")
    after(life, "a")

    assert replanned(life, Patch(add=(a_step("x", "a"), a_step("y", "a"), a_step("z", "x"))))[
        1:
    ] == [group("g2", "x"), group("g3", "y")]
    assert [one.step_id for one in life.handoffs["x.1"].context] == ["a"]


def test_steps_that_nothing_keeps_back_begin_while_it_thinks() -> None:
    life = adaptive(a="", b="a")

    assert after(life, "a") == [group("g2", "b"), LOOK]


def test_what_came_in_while_it_thought_is_looked_at_next() -> None:
    life = adaptive(a="", b="a")
    after(life, "a")
    assert after(life, "b") == []

    assert replanned(life)[1:] == [IssueRole("replanner", 2)]
    assert replanned(life)[1:] == [IssueRole("assessor", 1)]


def test_a_step_that_began_meanwhile_is_neither_changed_nor_dropped() -> None:
    life = adaptive(a="", b="a", c="b")
    after(life, "a")
    replanned(life, Patch(add=(a_step("x", "a"),), change=(a_step("c", "a"),), drop=(StepId("b"),)))

    made = latest(life)
    assert (made.too_late, made.dropped, [one.id for one in made.changed]) == (("b",), (), ["c"])
    assert life.state.steps.keys() == {"a", "b", "c", "x"}


def test_a_patch_that_fits_no_more_changes_nothing_and_the_job_goes_on() -> None:
    life = adaptive(a="", b="a", c="b")
    after(life, "a")
    replanned(life, Patch(add=(a_step("x", "nowhere"),)))

    assert (latest(life).plan, latest(life).problem) == (
        None,
        "its patch does not fit the plan any more",
    )
    assert life.out == {"b"}


def test_a_replanner_that_failed_leaves_the_plan_as_it_was() -> None:
    life = adaptive(a="")
    after(life, "a")

    assert replanned(life, status="failed")[1:] == [IssueRole("assessor", 1)]
    assert latest(life).problem == "the replanner failed"


def test_a_look_that_failed_is_told_with_the_answer_and_why() -> None:
    life = adaptive(a="")
    after(life, "a")
    replanned(life, status="failed")

    assert (
        "The plan was not changed after the results: the replanner failed (it broke)."
        in notes_of(life)
    )
    assert latest(life).result in results_for_answer(life.state)


def test_a_look_that_left_the_plan_as_it_was_is_not_told() -> None:
    life = adaptive(a="")
    after(life, "a")
    replanned(life)

    assert notes_of(life) == ()


def test_what_is_final_drops_what_has_not_begun_and_nobody_is_asked_again() -> None:
    life = adaptive(a="", b="", c="b")
    life.finishes("a")
    life.goes_on()
    replanned(life, Patch(finalize=True))

    assert life.state.steps.keys() == {"a", "b"}
    assert after(life, "b") == [IssueRole("assessor", 1)]


def test_a_step_whose_basis_failed_may_be_changed_before_it_is_given_up() -> None:
    life = adaptive(a="", b="a")
    assert after(life, "a", status="failed", stop_reason=StopReason.MODEL_ERROR) == [LOOK]

    assert replanned(life, Patch(change=(a_step("b"),)))[1:] == [group("g2", "b")]


def test_nobody_having_changed_it_it_is_given_up() -> None:
    life = adaptive(a="", b="a")
    after(life, "a", status="failed", stop_reason=StopReason.MODEL_ERROR)

    assert replanned(life)[1] == given_up("everything that it depends on failed", "b")


def test_a_failure_that_gets_another_chance_is_no_news_yet() -> None:
    life = Life(mode=Mode.ADAPTIVE)
    life.goes_on()
    life.plans(Plan(steps=(a_step("a").model_copy(update={"on_failure": OnFailure.RETRY}),)))
    life.goes_on()

    assert after(life, "a", status="failed") == [
        TryAgain((SecondChance(step=StepId("a")),)),
        group("g2", "a"),
    ]
    assert after(life, "a") == [LOOK]


def test_a_plan_is_changed_as_often_as_there_are_rounds_and_the_answer_says_that_it_was() -> None:
    life = adaptive(JobLimits(max_rounds=1), a="")
    after(life, "a")
    replanned(life, Patch(add=(a_step("x"),)))

    assert after(life, "x") == [IssueRole("assessor", 1)]
    assert "The plan was not changed any more: its limit of 1 rounds is reached." in notes_of(life)


def test_a_plan_that_has_all_the_steps_it_may_have_is_not_looked_at() -> None:
    life = adaptive(JobLimits(max_steps=1), a="")

    assert after(life, "a") == [IssueRole("assessor", 1)]
    assert (
        "The plan was not changed any more: it has 1 steps, and its limits allow no more."
        in notes_of(life)
    )


def test_who_asks_for_nothing_but_what_was_asked_for_already_is_not_asked_again() -> None:
    life = adaptive(a="", b="a")
    after(life, "a")
    replanned(life, Patch(repeats=(Repeat(step=StepId("x"), earlier=StepId("a")),)))

    assert after(life, "b") == [IssueRole("assessor", 1)]
    assert (
        "The plan was not changed any more: the replanner asked for the same work again, in other words (x is a)."
        in notes_of(life)
    )


def test_who_asks_for_something_new_beside_it_gets_that_and_is_asked_again() -> None:
    life = adaptive(a="")
    after(life, "a")
    replanned(
        life, Patch(add=(a_step("y"),), repeats=(Repeat(step=StepId("x"), earlier=StepId("a")),))
    )

    assert after(life, "y") == [IssueRole("replanner", 2)]


def test_without_time_or_money_nobody_looks() -> None:
    life = adaptive(a="")
    life.now = life.state.working_deadline
    assert IssueRole("replanner", 1) not in after(life, "a")

    life = adaptive(a="")
    assert after(life, "a", status="partial", stop_reason=StopReason.JOB_BUDGET) == [
        IssueRole("assessor", 1)
    ]


def test_a_look_that_the_budget_stopped_is_taken_again_when_there_is_more() -> None:
    life = adaptive(JobLimits(on_limit=OnLimit.ASK, max_turns=3), a="")
    after(life, "a")
    life.finishes("replanner", "failed", stop_reason=StopReason.JOB_BUDGET)
    life.goes_on()
    life.happens(RetryRequested(max_turns=9))

    assert life.goes_on() == [IssueRole("replanner", 2)]


def test_an_endless_revise_ends_as_in_a_team() -> None:
    life = adaptive(a="")
    after(life, "a")
    replanned(life)
    for _ in range(2):
        life.judges(a="wrong")
        life.goes_on()
        after(life, "a")
        replanned(life)
    life.judges(a="wrong")
    life.goes_on()

    assert (life.state.status, len(life.state.rounds)) == (JobStatus.PARTIAL, 3)


def test_a_patch_of_an_approved_plan_is_not_asked_about() -> None:
    life = adaptive(approvals=Approvals(what=(ApprovalOf.PLAN,)), a="")
    life.approves()
    life.goes_on()
    after(life, "a")

    assert [type(one) for one in replanned(life, Patch(add=(a_step("x"),)))] == [
        PatchPlan,
        IssueGroup,
    ]


def test_a_rejected_plan_is_planned_again_and_stays_adaptive() -> None:
    life = adaptive(approvals=Approvals(what=(ApprovalOf.PLAN,)), a="")
    life.rejects("No.")

    assert life.goes_on() == [IssueRole("planner", 2)]
    assert life.state.mode is Mode.ADAPTIVE


def test_a_retried_job_may_be_changed_again() -> None:
    life = adaptive(JobLimits(max_rounds=1), a="")
    after(life, "a")
    replanned(life, Patch(add=(a_step("x"),)))
    after(life, "x", status="partial")
    life.judges()
    life.goes_on()
    life.synthesises()
    life.goes_on()
    life.happens(RetryRequested())
    life.goes_on()

    assert after(life, "x") == [IssueRole("replanner", 2)]


def test_in_a_team_the_plan_is_run_as_it_is() -> None:
    life = planned(a="", b="a")
    assert after(life, "a") == [group("g2", "b")]
    assert after(life, "b") == [IssueRole("assessor", 1)]
