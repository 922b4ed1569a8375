"""The lifecycle of a job from its submission to its answer."""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.events import BY_SCHEDULE, AnswerMethod, CancelRequested, JobStatus
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.names import Role
from handoff_queue.supervisor.lifecycle.commands import (
    AbandonSteps,
    ChooseAnswer,
    Command,
    EndJob,
    IssueGroup,
    IssueRole,
    SkipReview,
)
from handoff_queue.supervisor.lifecycle.decide import MAX_HANDOFFS_A_DECISION, MAX_NEEDS_ANSWERED
from handoff_queue.supervisor.lifecycle.state import Phase
from tests.doubles.lifecycle_commands import given_up, group
from tests.doubles.simulated_job import SimulatedJob, planned


def groups_of(commands: list[Command]) -> list[set[str]]:
    return [set(command.steps) for command in commands if isinstance(command, IssueGroup)]


def test_a_new_job_is_planned_first() -> None:
    job = SimulatedJob()

    assert job.advance() == [IssueRole(Role.PLANNER, 1)]
    assert job.state.status is JobStatus.RUNNING


def test_without_a_live_specialist_the_job_waits() -> None:
    job = SimulatedJob()
    job.specialists = frozenset()

    assert job.next_commands() == ()
    assert job.state.status is JobStatus.QUEUED


def test_planning_working_review_synthesis_end() -> None:
    job = SimulatedJob()
    phases = [job.state.phase]
    job.advance()
    job.make_plan(a="")
    phases.append(job.state.phase)
    assert job.advance() == [group("g1", "a")]
    job.finish("a")
    assert job.advance() == [IssueRole(Role.ASSESSOR, 1)]
    job.review()
    phases.append(job.state.phase)
    assert job.advance() == [ChooseAnswer(AnswerMethod.SINGLE_SINK), EndJob(JobStatus.OK)]

    assert [*phases, job.state.phase] == [
        Phase.PLANNING,
        Phase.WORKING,
        Phase.SYNTHESIZING,
        Phase.ENDED,
    ]
    assert job.next_commands() == ()


def test_steps_that_depend_on_nothing_start_together() -> None:
    job = SimulatedJob()
    job.advance()
    job.make_plan(a="", b="", c="a b")

    assert groups_of(job.advance()) == [{"a", "b"}]


def test_a_step_starts_as_soon_as_its_dependencies_are_settled() -> None:
    job = planned(a="", b="", c="a", d="a b")
    job.finish("a")

    assert groups_of(job.advance()) == [{"c"}]
    assert job.open_names == {"b", "c"}


def test_ready_steps_are_grouped_by_their_dependents_so_unequal_branches_never_wait() -> None:
    job = SimulatedJob()
    job.advance()
    job.make_plan(a="", b="", c="", d="", x="a b", y="c", z="x y d")

    assert groups_of(job.advance()) == [{"a", "b"}, {"c"}, {"d"}]


@pytest.mark.slow
def test_no_group_is_larger_than_the_publications_of_a_second() -> None:
    job = SimulatedJob(JobLimits(max_handoffs=5_000))
    job.advance()
    job.make_plan(**{f"s{n}": "" for n in range(2 * MAX_HANDOFFS_A_DECISION + 1)})

    assert [len(group) for group in groups_of(job.advance())] == [
        MAX_HANDOFFS_A_DECISION,
        MAX_HANDOFFS_A_DECISION,
        1,
    ]


def test_every_group_of_a_job_has_a_unique_name() -> None:
    job = planned(a="", b="", c="a", d="b")
    job.finish("a")
    job.advance()
    job.finish("b")
    job.advance()

    names = [handoff.group for handoff in job.state.open.values()]
    assert len(set(names)) == len(names)


def test_a_failed_step_does_not_throw_away_the_rest() -> None:
    job = planned(a="", b="", c="a b")
    job.finish("a", "failed")
    job.finish("b")
    job.advance()

    assert job.open_names == {"c"}
    assert [item.step_id for item in job.handoffs["c.1"].context] == ["a", "b"]
    job.finish("c")
    job.advance()
    job.review()
    assert job.advance()[-1] == EndJob(JobStatus.PARTIAL)


def test_a_step_with_nothing_to_build_on_is_given_up() -> None:
    job = planned(a="", b="", c="a", d="b", e="c d")
    job.finish("a", "failed")

    assert job.advance() == [given_up("everything that it depends on failed", "c")]
    job.finish("b")
    job.advance()
    job.finish("d")
    job.advance()
    assert job.open_names == {"e"}


def test_if_everything_failed_there_is_no_review_and_the_job_fails_with_the_first_reason() -> None:
    job = planned(b="a", a="")
    job.finish("a", "failed", error="no such thing")

    followed = job.advance()
    assert followed[-3:] == [
        SkipReview("no step has a usable result"),
        ChooseAnswer(AnswerMethod.NONE),
        EndJob(
            JobStatus.FAILED,
            "no step has a usable result (a by researcher: failed)",
            job.result_of("a.1"),
        ),
    ]


def test_partial_work_is_built_upon_and_named() -> None:
    job = planned(a="", b="a")
    job.finish("a", "partial")
    job.advance()
    assert job.open_names == {"b"}
    job.finish("b")
    job.advance()
    job.review()

    assert job.advance()[-1] == EndJob(JobStatus.PARTIAL)


# Inputs of a step


def test_a_steps_need_reaches_the_planner_and_the_answer_returns_as_feedback() -> None:
    job = planned(a="", b="")
    job.finish("a", "needs_input", needs="the year")

    assert job.advance() == [IssueRole(Role.PLANNER, 2)]
    job.resolve_needs(a="1999")
    assert groups_of(job.advance()) == [{"a"}]
    (feedback,) = job.handoffs["a.2"].feedback
    assert (feedback.author, feedback.text) == ("planner", "1999")


def test_the_planner_answers_while_other_steps_run() -> None:
    job = planned(a="", b="")
    job.finish("a", "needs_input")
    job.advance()

    assert job.open_names == {"b", "planner"}


def test_a_second_need_waits_until_the_planner_is_free() -> None:
    job = planned(a="", b="")
    job.finish("a", "needs_input")
    job.advance()
    job.finish("b", "needs_input")
    assert job.advance() == []

    job.resolve_needs(a="42")
    assert job.advance() == [group("g2", "a"), IssueRole(Role.PLANNER, 3)]


def test_a_step_that_the_planner_gives_up_is_settled_without_a_usable_result() -> None:
    job = planned(a="", b="a")
    job.finish("a", "needs_input", needs="the year")
    job.advance()
    job.resolve_needs(a=None)
    job.advance()

    assert job.failure_reason("a") == "needs: the year"
    assert job.state.status is JobStatus.FAILED


def test_a_step_that_needs_something_again_and_again_is_given_up() -> None:
    job = planned(a="", b="")
    for _ in range(MAX_NEEDS_ANSWERED):
        job.finish("a", "needs_input")
        job.advance()
        job.resolve_needs(a="42")
        job.advance()
    job.finish("a", "needs_input")

    (command,) = job.advance()
    assert isinstance(command, AbandonSteps)
    assert command.steps == ("a",)


def test_a_cancel_ends_the_job_in_every_state() -> None:
    for stop_after in range(4):
        job = SimulatedJob()
        job.advance()
        if stop_after > 0:
            job.make_plan(a="")
            job.advance()
        if stop_after > 1:
            job.finish("a")
            job.advance()
        job.append(CancelRequested())

        assert job.advance() == [EndJob(JobStatus.CANCELLED, "cancelled by the user")]
        assert job.open_names == set()


def test_a_job_that_its_schedule_cancels_names_the_schedule() -> None:
    job = SimulatedJob()
    job.append(CancelRequested(by=f"{BY_SCHEDULE}news"))

    reason = "cancelled by schedule news for its next slot"
    assert job.advance() == [EndJob(JobStatus.CANCELLED, reason)]
