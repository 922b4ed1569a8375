"""Rounds of review, and the answer that follows from their results."""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.events import AnswerMethod, CancelRequested, JobStatus, Synthesised
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.plan import Synthesis
from handoff_queue.supervisor.lifecycle.commands import (
    ChooseAnswer,
    Command,
    EndJob,
    IssueGroup,
    IssueRole,
)
from handoff_queue.supervisor.lifecycle.gaps import gaps_of
from handoff_queue.supervisor.lifecycle.state import StepStatus
from tests.doubles.life import Life, a_plan, planned


def groups_of(commands: list[Command]) -> list[set[str]]:
    return [set(command.steps) for command in commands if isinstance(command, IssueGroup)]


def test_revised_steps_run_again_with_the_feedback_and_so_does_what_builds_on_them() -> None:
    life = planned(a="", b="", c="a", d="b")
    for name in ("a", "b"):
        life.finishes(name)
    life.goes_on()
    for name in ("c", "d"):
        life.finishes(name)
    life.goes_on()
    life.judges(a="not what was asked")

    assert groups_of(life.goes_on()) == [{"a"}]
    assert life.step("c").status is StepStatus.WAITING
    assert life.step("b").status is life.step("d").status is StepStatus.SETTLED
    (feedback,) = life.handoffs["a.2"].feedback
    assert (feedback.author, feedback.text, feedback.previous) == (
        "assessor",
        "not what was asked",
        life.result_of("a.1"),
    )
    life.finishes("a")
    assert groups_of(life.goes_on()) == [{"c"}]
    assert life.handoffs["c.2"].feedback[0].author == "assessor"


@pytest.mark.parametrize("rounds", [0, 1, 2, 5])
def test_work_is_sent_back_at_most_so_often_and_then_the_answer_leaves_with_open_points(
    rounds: int,
) -> None:
    life = planned(limits=JobLimits(max_rounds=rounds), a="")
    sent_back = -1
    while not life.state.ended:
        sent_back += 1
        life.finishes("a")
        life.goes_on()
        life.judges("and this", a="still wrong")
        life.goes_on()

    assert sent_back == rounds
    assert life.state.status is JobStatus.PARTIAL


def test_a_job_that_was_accepted_after_a_revision_is_ok() -> None:
    life = planned(a="")
    life.finishes("a")
    life.goes_on()
    life.judges(a="wrong")
    life.goes_on()
    life.finishes("a")
    life.goes_on()
    life.judges()
    life.goes_on()

    assert life.state.status is JobStatus.OK


def test_a_job_without_a_plan_worth_the_name_is_partial_however_good_its_one_step() -> None:
    life = Life()
    life.goes_on()
    life.plans(degraded="the plan has no steps", answer="")
    life.goes_on()
    life.finishes("answer")
    life.goes_on()
    life.judges()
    life.goes_on()

    assert life.state.status is JobStatus.PARTIAL


# Synthesis


def test_independent_sections_are_merged_by_code() -> None:
    life = planned(a="", b="")
    for name in ("a", "b"):
        life.finishes(name)
    life.goes_on()
    life.judges()

    assert life.goes_on()[0] == ChooseAnswer(AnswerMethod.MERGED)


def test_only_what_must_be_reconciled_costs_a_call() -> None:
    life = planned(a_plan(Synthesis.RECONCILE, a="", b=""))
    for name in ("a", "b"):
        life.finishes(name)
    life.goes_on()
    life.judges()

    assert life.goes_on() == [IssueRole("synthesizer", 1)]
    life.synthesises()
    assert life.goes_on() == [EndJob(JobStatus.OK)]


def test_a_synthesis_with_a_problem_makes_the_answer_partial() -> None:
    life = planned(a_plan(Synthesis.RECONCILE, a="", b=""))
    for name in ("a", "b"):
        life.finishes(name)
    life.goes_on()
    life.judges()
    life.goes_on()
    life.finishes("synthesizer", "failed")
    life.happens(Synthesised(method=AnswerMethod.MERGED, problem="the synthesizer failed"))

    assert life.goes_on() == [EndJob(JobStatus.PARTIAL)]


def sent_back() -> Life:
    """A job whose one good result was sent back."""
    life = planned(a="")
    life.finishes("a")
    life.goes_on()
    life.judges(a="add a table")
    life.goes_on()
    return life


def test_a_gap_says_whether_its_step_was_stopped_or_never_ran() -> None:
    life = planned(a="", b="a")
    life.happens(CancelRequested())
    life.goes_on()

    gaps = {gap.step: gap.why for gap in gaps_of(life.state, life.words)}
    assert gaps == {"a": "it was stopped before it had a result", "b": "it did not run"}


def test_a_result_that_was_sent_back_stands_in_when_its_revision_fails() -> None:
    life = sent_back()
    life.finishes("a", "failed", error="no model")
    life.goes_on()

    assert life.step("a").result == life.result_of("a.1")
    assert (
        gaps_of(life.state, life.words)[0].why
        == "incomplete: it was sent back, and the new attempt failed: no model"
    )
    life.judges()
    life.goes_on()
    assert life.state.status is JobStatus.PARTIAL


def test_a_result_that_was_sent_back_stands_in_when_time_is_over() -> None:
    life = sent_back()
    life.now = life.state.deadline
    life.goes_on()

    assert life.step("a").result == life.result_of("a.1")
    assert life.state.status is JobStatus.PARTIAL


def test_what_builds_on_a_step_whose_revision_failed_is_not_hopeless() -> None:
    life = planned(a="", b="a")
    for name in ("a", "b"):
        life.finishes(name)
        life.goes_on()
    life.judges(a="wrong")
    life.goes_on()
    life.finishes("a", "failed")

    assert groups_of(life.goes_on()) == [{"b"}]
