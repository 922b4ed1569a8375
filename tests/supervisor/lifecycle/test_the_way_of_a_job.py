"""A job from its submission to its answer, as a specification."""

from __future__ import annotations

from handoff_queue.shared.types.events import AnswerMethod, CancelRequested, JobStatus
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.supervisor.lifecycle.commands import (
    AbandonSteps,
    ChooseAnswer,
    Command,
    EndJob,
    IssueGroup,
    IssueRole,
    SkipReview,
)
from handoff_queue.supervisor.lifecycle.decide import MOST_IN_A_SLICE, MOST_NEEDS_ANSWERED
from handoff_queue.supervisor.lifecycle.state import Phase
from tests.doubles.life import Life, planned
from tests.doubles.orders import given_up, group


def groups_of(commands: list[Command]) -> list[set[str]]:
    return [set(command.steps) for command in commands if isinstance(command, IssueGroup)]


def test_a_new_job_is_planned_first() -> None:
    life = Life()

    assert life.goes_on() == [IssueRole("planner", 1)]
    assert life.state.status is JobStatus.RUNNING


def test_with_no_specialist_there_it_waits_for_one() -> None:
    life = Life()
    life.roles = frozenset()

    assert life.decides() == ()
    assert life.state.status is JobStatus.QUEUED


def test_planning_working_review_synthesis_end() -> None:
    life = Life()
    phases = [life.state.phase]
    life.goes_on()
    life.plans(a="")
    phases.append(life.state.phase)
    assert life.goes_on() == [group("g1", "a")]
    life.finishes("a")
    assert life.goes_on() == [IssueRole("assessor", 1)]
    life.judges()
    phases.append(life.state.phase)
    assert life.goes_on() == [ChooseAnswer(AnswerMethod.SINGLE_SINK), EndJob(JobStatus.OK)]

    assert [*phases, life.state.phase] == [
        Phase.PLANNING,
        Phase.WORKING,
        Phase.SYNTHESISING,
        Phase.ENDED,
    ]
    assert life.decides() == ()


def test_steps_that_depend_on_nothing_start_together() -> None:
    life = Life()
    life.goes_on()
    life.plans(a="", b="", c="a b")

    assert groups_of(life.goes_on()) == [{"a", "b"}]


def test_a_step_starts_as_soon_as_what_it_depends_on_is_settled() -> None:
    life = planned(a="", b="", c="a", d="a b")
    life.finishes("a")

    assert groups_of(life.goes_on()) == [{"c"}]
    assert life.out == {"b", "c"}


def test_ready_steps_are_grouped_by_who_waits_for_them_so_that_unequal_branches_never_wait_for_each_other() -> (
    None
):
    life = Life()
    life.goes_on()
    life.plans(a="", b="", c="", d="", x="a b", y="c", z="x y d")

    assert groups_of(life.goes_on()) == [{"a", "b"}, {"c"}, {"d"}]


def test_no_group_is_larger_than_what_is_published_in_a_second() -> None:
    life = Life(JobLimits(max_handoffs=5_000))
    life.goes_on()
    life.plans(**{f"s{n}": "" for n in range(2 * MOST_IN_A_SLICE + 1)})

    assert [len(group) for group in groups_of(life.goes_on())] == [
        MOST_IN_A_SLICE,
        MOST_IN_A_SLICE,
        1,
    ]


def test_every_group_of_a_job_has_a_name_of_its_own() -> None:
    life = planned(a="", b="", c="a", d="b")
    life.finishes("a")
    life.goes_on()
    life.finishes("b")
    life.goes_on()

    names = [handoff.group for handoff in life.state.open.values()]
    assert len(set(names)) == len(names)


def test_a_failed_step_does_not_throw_away_the_rest() -> None:
    life = planned(a="", b="", c="a b")
    life.finishes("a", "failed")
    life.finishes("b")
    life.goes_on()

    assert life.out == {"c"}
    assert [item.step_id for item in life.handoffs["c.1"].context] == ["a", "b"]
    life.finishes("c")
    life.goes_on()
    life.judges()
    assert life.goes_on()[-1] == EndJob(JobStatus.PARTIAL)


def test_a_step_with_nothing_to_build_on_is_given_up() -> None:
    life = planned(a="", b="", c="a", d="b", e="c d")
    life.finishes("a", "failed")

    assert life.goes_on() == [given_up("everything that it depends on failed", "c")]
    life.finishes("b")
    life.goes_on()
    life.finishes("d")
    life.goes_on()
    assert life.out == {"e"}


def test_when_everything_failed_nobody_reviews_and_the_job_fails_with_the_first_reason() -> None:
    life = planned(b="a", a="")
    life.finishes("a", "failed", error="no such thing")

    followed = life.goes_on()
    assert followed[-3:] == [
        SkipReview("no step has a usable result"),
        ChooseAnswer(AnswerMethod.NONE),
        EndJob(JobStatus.FAILED, "no step has a usable result (a: failed)", life.result_of("a.1")),
    ]


def test_partial_work_is_built_upon_and_named() -> None:
    life = planned(a="", b="a")
    life.finishes("a", "partial")
    life.goes_on()
    assert life.out == {"b"}
    life.finishes("b")
    life.goes_on()
    life.judges()

    assert life.goes_on()[-1] == EndJob(JobStatus.PARTIAL)


# Inputs of a step


def test_what_a_step_needs_reaches_the_planner_and_the_answer_comes_back_as_feedback() -> None:
    life = planned(a="", b="")
    life.finishes("a", "needs_input", needs="the year")

    assert life.goes_on() == [IssueRole("planner", 2)]
    life.answers_needs(a="1999")
    assert groups_of(life.goes_on()) == [{"a"}]
    (feedback,) = life.handoffs["a.2"].feedback
    assert (feedback.author, feedback.text) == ("planner", "1999")


def test_the_planner_answers_while_other_steps_run() -> None:
    life = planned(a="", b="")
    life.finishes("a", "needs_input")
    life.goes_on()

    assert life.out == {"b", "planner"}


def test_a_second_need_waits_until_the_planner_is_free() -> None:
    life = planned(a="", b="")
    life.finishes("a", "needs_input")
    life.goes_on()
    life.finishes("b", "needs_input")
    assert life.goes_on() == []

    life.answers_needs(a="42")
    assert life.goes_on() == [group("g2", "a"), IssueRole("planner", 3)]


def test_what_the_planner_gives_up_is_settled_without_a_result_to_build_on() -> None:
    life = planned(a="", b="a")
    life.finishes("a", "needs_input", needs="the year")
    life.goes_on()
    life.answers_needs(a=None)
    life.goes_on()

    assert life.why("a") == "needs: the year"
    assert life.state.status is JobStatus.FAILED


def test_a_step_that_needs_something_again_and_again_is_given_up() -> None:
    life = planned(a="", b="")
    for _ in range(MOST_NEEDS_ANSWERED):
        life.finishes("a", "needs_input")
        life.goes_on()
        life.answers_needs(a="42")
        life.goes_on()
    life.finishes("a", "needs_input")

    (command,) = life.goes_on()
    assert isinstance(command, AbandonSteps)
    assert command.steps == ("a",)


def test_a_cancel_ends_the_job_wherever_it_is() -> None:
    for stop_after in range(4):
        life = Life()
        life.goes_on()
        if stop_after > 0:
            life.plans(a="")
            life.goes_on()
        if stop_after > 1:
            life.finishes("a")
            life.goes_on()
        life.happens(CancelRequested())

        assert life.goes_on() == [EndJob(JobStatus.CANCELLED, "cancelled by the user")]
        assert life.out == set()
