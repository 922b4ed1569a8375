"""A step that needs input waits for an input step, which the planner adds."""

from __future__ import annotations

from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.names import Role
from handoff_queue.shared.types.plan import Patch, Plan
from handoff_queue.shared.types.step import Join, Step
from handoff_queue.supervisor.lifecycle.commands import IssueRole
from handoff_queue.supervisor.lifecycle.decide import MAX_NEEDS_ANSWERED
from handoff_queue.supervisor.lifecycle.helper_steps import can_help, count_steps_left, find_helpers
from handoff_queue.supervisor.lifecycle.state import StepStatus
from tests.doubles.input_resolutions import an_input_step
from tests.doubles.simulated_job import SimulatedJob, finish_steps, planned


def ask_for_input(job: SimulatedJob, *names: str) -> SimulatedJob:
    for name in names:
        job.finish(name, "needs_input", needs="the year")
    job.advance()
    return job


def resolve_needs(job: SimulatedJob, **answers: str | Step | None) -> SimulatedJob:
    job.resolve_needs(**answers)
    job.advance()
    return job


def test_a_step_in_need_waits_for_its_input_step_and_continues_with_its_result() -> None:
    job = resolve_needs(ask_for_input(planned(a="", b="a"), "a"), a=an_input_step("h"))
    assert (job.open_names, job.step("a").status) == ({"h"}, StepStatus.WAITING)

    finish_steps(job, "h")
    assert job.handoffs["a.2"].depends_on == ("h",)
    assert (
        job.handoffs["a.2"].feedback[0].text.startswith("Step h was added to answer your question")
    )
    assert job.open_names == {"a"}


def test_a_helper_is_not_part_of_the_answer() -> None:
    job = resolve_needs(ask_for_input(planned(a="", b="a"), "a"), a=an_input_step("h"))

    assert job.state.sinks == ("b",)
    assert find_helpers(job.state) == {"h"}


def test_a_failed_input_step_fails_no_other_step() -> None:
    job = resolve_needs(ask_for_input(planned(a=""), "a"), a=an_input_step("h"))
    while "h" in job.open_names:
        job.finish("h", "failed")
        job.advance()

    assert job.step("h").is_usable is False
    assert job.open_names == {"a"}
    assert job.handoffs["a.2"].depends_on == ("h",), "it is told"


def test_two_steps_with_the_same_need_wait_for_the_same_input_step() -> None:
    job = ask_for_input(planned(a="", b=""), "a", "b")
    input_step = an_input_step("h")
    resolve_needs(job, a=input_step, b=input_step)
    assert job.open_names == {"h"}

    finish_steps(job, "h")
    assert job.open_names == {"a", "b"}


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
    job = planned(Plan(steps=(*parts, joined)))
    finish_steps(job, "x")
    resolve_needs(ask_for_input(job, "a"), a=an_input_step("h"))
    assert job.open_names == {"h"}, "one result is enough to begin with, but not what it needs"

    finish_steps(job, "h")
    assert job.handoffs["a.2"].depends_on == ("x", "y", "h")


def test_a_helper_counts_as_an_answer_of_the_planner() -> None:
    job = planned(a="")
    for number in range(MAX_NEEDS_ANSWERED):
        resolve_needs(ask_for_input(job, "a"), a=an_input_step(f"h{number}"))
        finish_steps(job, f"h{number}")
    ask_for_input(job, "a")

    assert "a" not in job.open_names
    assert "still needs something" in str(job.failure_reason("a"))


def test_a_plan_that_changed_in_between_gets_no_input_step_and_the_planner_is_asked_again() -> None:
    job = SimulatedJob(mode=Mode.ADAPTIVE)
    job.advance()
    job.make_plan(a="", b="a")
    job.advance()
    finish_steps(job, "a")
    ask_for_input(job, "b")
    known = (job.state, job.plan)
    job.patch_plan(Patch(add=(an_input_step("p"),)))
    job.advance()
    job.resolve_needs(known, b=an_input_step("h"))

    assert "h" not in job.state.steps
    assert job.advance() == [IssueRole(Role.PLANNER, 3)]


def test_a_step_that_was_given_up_in_between_gets_no_input_step() -> None:
    either = tuple(
        Step(id=StepId(name), specialist="researcher", task=f"Do {name}.") for name in ("a", "b")
    )
    job = ask_for_input(planned(Plan(steps=either, join=Join(enough=1))), "a")
    known = (job.state, job.plan)
    finish_steps(job, "b")
    job.resolve_needs(known, a=an_input_step("h"))

    assert "h" not in job.state.steps
    assert job.step("a").status is StepStatus.SETTLED


def test_steps_are_added_as_long_as_the_limits_allow() -> None:
    assert count_steps_left(planned(a="", limits=JobLimits(max_steps=8)).state) == 7
    assert can_help(planned(a="", limits=JobLimits(max_steps=8)).state)
    assert not can_help(planned(a="", limits=JobLimits(max_steps=8, max_handoffs=4)).state)


def test_a_single_agent_has_no_helper_steps() -> None:
    job = SimulatedJob(mode=Mode.SINGLE)
    job.advance()

    assert count_steps_left(job.state) == 0
