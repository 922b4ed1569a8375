"""A step needs input: the planner adds another step that finds it, and the step in need waits for
that step.
"""

from __future__ import annotations

from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.plan import Join, Patch, Plan, Step
from handoff_queue.supervisor.lifecycle.commands import IssueRole
from handoff_queue.supervisor.lifecycle.decide import MOST_NEEDS_ANSWERED
from handoff_queue.supervisor.lifecycle.input_steps import can_help, helpers_of, room
from handoff_queue.supervisor.lifecycle.state import StepStatus
from tests.doubles.life import Life, done, planned
from tests.doubles.needs import a_helper


def in_need(life: Life, *names: str) -> Life:
    for name in names:
        life.finishes(name, "needs_input", needs="the year")
    life.goes_on()
    return life


def helped(life: Life, **answers: str | Step | None) -> Life:
    life.answers_needs(**answers)
    life.goes_on()
    return life


def test_a_step_in_need_waits_for_its_helper_and_goes_on_with_its_result() -> None:
    life = helped(in_need(planned(a="", b="a"), "a"), a=a_helper("h"))
    assert (life.out, life.step("a").status) == ({"h"}, StepStatus.WAITING)

    done(life, "h")
    assert life.handoffs["a.2"].depends_on == ("h",)
    assert (
        life.handoffs["a.2"].feedback[0].text.startswith("Step h was added to answer your question")
    )
    assert life.out == {"a"}


def test_a_helper_is_no_part_of_the_answer() -> None:
    life = helped(in_need(planned(a="", b="a"), "a"), a=a_helper("h"))

    assert life.state.sinks == ("b",)
    assert helpers_of(life.state) == {"h"}


def test_a_helper_that_fails_takes_nobody_with_it() -> None:
    life = helped(in_need(planned(a=""), "a"), a=a_helper("h"))
    while "h" in life.out:
        life.finishes("h", "failed")
        life.goes_on()

    assert life.step("h").usable is False
    assert life.out == {"a"}
    assert life.handoffs["a.2"].depends_on == ("h",), "it is told"


def test_two_steps_that_need_the_same_wait_for_the_same_helper() -> None:
    life = in_need(planned(a="", b=""), "a", "b")
    one = a_helper("h")
    helped(life, a=one, b=one)
    assert life.out == {"h"}

    done(life, "h")
    assert life.out == {"a", "b"}


def test_a_join_counts_no_helper() -> None:
    parts = [
        Step(id=StepId(name), specialist="researcher", task=f"Do {name}.") for name in ("x", "y")
    ]
    joined = Step(
        id=StepId("a"),
        specialist="researcher",
        task="Do a.",
        depends_on=(StepId("x"), StepId("y")),
        join=Join(enough=1),
    )
    life = planned(Plan(steps=(*parts, joined)))
    done(life, "x")
    helped(in_need(life, "a"), a=a_helper("h"))
    assert life.out == {"h"}, "one result is enough to begin with, but not what it needs"

    done(life, "h")
    assert life.handoffs["a.2"].depends_on == ("x", "y", "h")


def test_a_helper_counts_as_an_answer_of_the_planner() -> None:
    life = planned(a="")
    for number in range(MOST_NEEDS_ANSWERED):
        helped(in_need(life, "a"), a=a_helper(f"h{number}"))
        done(life, f"h{number}")
    in_need(life, "a")

    assert "a" not in life.out
    assert "still needs something" in str(life.why("a"))


def test_nothing_is_added_to_a_plan_that_was_changed_meanwhile_and_the_planner_is_asked_again() -> (
    None
):
    life = Life(mode=Mode.ADAPTIVE)
    life.goes_on()
    life.plans(a="", b="a")
    life.goes_on()
    done(life, "a")
    in_need(life, "b")
    known = (life.state, life.plan)
    life.replans(Patch(add=(a_helper("p"),)))
    life.goes_on()
    life.answers_needs(known, b=a_helper("h"))

    assert "h" not in life.state.steps
    assert life.goes_on() == [IssueRole("planner", 3)]


def test_nothing_is_added_for_a_step_that_was_given_up_meanwhile() -> None:
    either = tuple(
        Step(id=StepId(name), specialist="researcher", task=f"Do {name}.") for name in ("a", "b")
    )
    life = in_need(planned(Plan(steps=either, join=Join(enough=1))), "a")
    known = (life.state, life.plan)
    done(life, "b")
    life.answers_needs(known, a=a_helper("h"))

    assert "h" not in life.state.steps
    assert life.step("a").status is StepStatus.SETTLED


def test_steps_are_added_as_long_as_the_limits_allow() -> None:
    assert room(planned(a="", limits=JobLimits(max_steps=8)).state) == 7
    assert can_help(planned(a="", limits=JobLimits(max_steps=8)).state)
    assert not can_help(planned(a="", limits=JobLimits(max_steps=8, max_handoffs=4)).state)


def test_one_agent_alone_has_no_helpers() -> None:
    life = Life(mode=Mode.SINGLE)
    life.goes_on()

    assert room(life.state) == 0
