"""The writers of the answer know its gates and its rubric before they write."""

from __future__ import annotations

from typing import Any

from handoff_queue.shared.types.gates import REQUIREMENTS, Gates
from handoff_queue.shared.types.handoff import AgentHandoff
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.plan import Plan, Synthesis
from handoff_queue.shared.types.review import Rubric
from handoff_queue.shared.types.step import Step
from handoff_queue.supervisor.lifecycle.answer_requirements import requirements_of
from handoff_queue.supervisor.lifecycle.handoffs import MAX_TASK_CHARS, step_handoff
from tests.doubles.handoffs import a_spec
from tests.doubles.simulated_job import SimulatedJob, a_plan

GATES = Gates(min_words=300, sections=("Risks",), forbidden=("(?i)tbd",), cited=True)


def a_job(plan: Plan, **submitted: Any) -> SimulatedJob:
    job = SimulatedJob(**submitted)
    job.advance()
    job.make_plan(plan)
    return job


def handoff_for(job: SimulatedJob, step_id: str, task: str = "Do it.") -> AgentHandoff:
    spec = a_spec()
    step = Step(id=StepId(step_id), specialist="researcher", task=task)
    return step_handoff(job.state, step, spec, spec.content_digest, job.texts, None)


def test_the_step_that_writes_the_answer_knows_the_gates() -> None:
    job = a_job(a_plan(a="", b="a"), gates=GATES)
    assert handoff_for(job, "b").task_description == (
        f"Do it.\n\n{REQUIREMENTS}\n"
        "- It has at least 300 words.\n"
        '- It has a heading "Risks".\n'
        "- No part of it matches the pattern '(?i)tbd'.\n"
        "- Each statement of fact points to a claim with a source, and the quote stands in the"
        " source letter by letter."
    )


def test_a_step_before_the_last_one_has_its_task_alone() -> None:
    job = a_job(a_plan(a="", b="a"), gates=GATES)
    assert handoff_for(job, "a").task_description == "Do it."


def test_the_step_that_writes_the_answer_knows_the_users_rubric() -> None:
    rubric = Rubric.of_fields({"tone": "It is written for children."})
    job = a_job(a_plan(a=""), rubric=rubric)
    assert handoff_for(job, "a").task_description.endswith("- tone: It is written for children.")


def test_a_job_without_conditions_adds_nothing_to_a_task() -> None:
    assert handoff_for(a_job(a_plan(a="")), "a").task_description == "Do it."


def test_each_of_several_parts_knows_that_the_conditions_are_for_the_whole_answer() -> None:
    task = handoff_for(a_job(a_plan(a="", b=""), gates=GATES), "a").task_description
    assert f"Your result is one of 2 parts of the answer. {REQUIREMENTS}\n" in task


def test_parts_that_a_synthesizer_compares_do_not_get_the_conditions() -> None:
    job = a_job(a_plan(Synthesis.RECONCILE, a="", b=""), gates=GATES)
    assert handoff_for(job, "a").task_description == "Do it."


def test_numbers_that_check_the_findings_are_not_told() -> None:
    job = a_job(a_plan(a=""), gates=Gates(numbers=(16000.0,)))
    assert requirements_of(job.state) == ()


def test_a_long_task_keeps_its_conditions() -> None:
    job = a_job(a_plan(a=""), gates=GATES)
    task = handoff_for(job, "a", "x" * 100_000).task_description
    assert len(task) <= MAX_TASK_CHARS
    assert REQUIREMENTS in task
