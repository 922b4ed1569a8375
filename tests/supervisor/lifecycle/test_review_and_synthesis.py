"""The assessor sends work back for some rounds. The results become the answer."""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.events import AnswerMethod, CancelRequested, JobStatus, Synthesized
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.names import Role
from handoff_queue.shared.types.plan import Synthesis
from handoff_queue.supervisor.lifecycle.commands import (
    ChooseAnswer,
    Command,
    EndJob,
    IssueGroup,
    IssueRole,
)
from handoff_queue.supervisor.lifecycle.gaps import find_gaps
from handoff_queue.supervisor.lifecycle.state import StepStatus
from tests.doubles.simulated_job import SimulatedJob, a_plan, planned


def groups_of(commands: list[Command]) -> list[set[str]]:
    return [set(command.steps) for command in commands if isinstance(command, IssueGroup)]


def test_revised_steps_run_again_with_the_feedback_and_so_do_their_dependents() -> None:
    job = planned(a="", b="", c="a", d="b")
    for name in ("a", "b"):
        job.finish(name)
    job.advance()
    for name in ("c", "d"):
        job.finish(name)
    job.advance()
    job.review(a="not what was asked")

    assert groups_of(job.advance()) == [{"a"}]
    assert job.step("c").status is StepStatus.WAITING
    assert job.step("b").status is job.step("d").status is StepStatus.SETTLED
    (feedback,) = job.handoffs["a.2"].feedback
    assert (feedback.author, feedback.text, feedback.previous) == (
        "assessor",
        "not what was asked",
        job.result_of("a.1"),
    )
    job.finish("a")
    assert groups_of(job.advance()) == [{"c"}]
    assert job.handoffs["c.2"].feedback[0].author == "assessor"


@pytest.mark.parametrize("rounds", [0, 1, 2, 5])
def test_after_the_last_round_of_revisions_the_answer_leaves_with_open_points(
    rounds: int,
) -> None:
    job = planned(limits=JobLimits(max_rounds=rounds), a="")
    sent_back = -1
    while not job.state.ended:
        sent_back += 1
        job.finish("a")
        job.advance()
        job.review("and this", a="still wrong")
        job.advance()

    assert sent_back == rounds
    assert job.state.status is JobStatus.PARTIAL


def test_a_job_that_was_accepted_after_a_revision_is_ok() -> None:
    job = planned(a="")
    job.finish("a")
    job.advance()
    job.review(a="wrong")
    job.advance()
    job.finish("a")
    job.advance()
    job.review()
    job.advance()

    assert job.state.status is JobStatus.OK


def test_a_job_with_a_degraded_plan_is_partial_even_with_a_good_result() -> None:
    job = SimulatedJob()
    job.advance()
    job.make_plan(degraded="the plan has no steps", answer="")
    job.advance()
    job.finish("answer")
    job.advance()
    job.review()
    job.advance()

    assert job.state.status is JobStatus.PARTIAL


# Synthesis


def test_independent_sections_are_merged_by_code() -> None:
    job = planned(a="", b="")
    for name in ("a", "b"):
        job.finish(name)
    job.advance()
    job.review()

    assert job.advance()[0] == ChooseAnswer(AnswerMethod.MERGED)


def test_only_results_that_need_reconciliation_cost_a_call() -> None:
    job = planned(a_plan(Synthesis.RECONCILE, a="", b=""))
    for name in ("a", "b"):
        job.finish(name)
    job.advance()
    job.review()

    assert job.advance() == [IssueRole(Role.SYNTHESIZER, 1)]
    job.synthesize()
    assert job.advance() == [EndJob(JobStatus.OK)]


def test_a_synthesis_with_a_problem_makes_the_answer_partial() -> None:
    job = planned(a_plan(Synthesis.RECONCILE, a="", b=""))
    for name in ("a", "b"):
        job.finish(name)
    job.advance()
    job.review()
    job.advance()
    job.finish("synthesizer", "failed")
    job.append(Synthesized(method=AnswerMethod.MERGED, problem="the synthesizer failed"))

    assert job.advance() == [EndJob(JobStatus.PARTIAL)]


def job_sent_back() -> SimulatedJob:
    """Return a job whose only result was good and was sent back."""
    job = planned(a="")
    job.finish("a")
    job.advance()
    job.review(a="add a table")
    job.advance()
    return job


def test_a_gap_says_whether_its_step_was_stopped_or_never_ran() -> None:
    job = planned(a="", b="a")
    job.append(CancelRequested())
    job.advance()

    gaps = {gap.step: gap.why for gap in find_gaps(job.state, job.texts)}
    assert gaps == {"a": "it was stopped before it had a result", "b": "it did not run"}


def test_a_returned_result_is_used_if_its_revision_fails() -> None:
    job = job_sent_back()
    job.finish("a", "failed", error="no model")
    job.advance()

    assert job.step("a").result == job.result_of("a.1")
    assert (
        find_gaps(job.state, job.texts)[0].why
        == "incomplete: it was sent back, and the new attempt failed: no model"
    )
    job.review()
    job.advance()
    assert job.state.status is JobStatus.PARTIAL


def test_a_returned_result_is_used_if_time_is_over() -> None:
    job = job_sent_back()
    job.now = job.state.deadline
    job.advance()

    assert job.step("a").result == job.result_of("a.1")
    assert job.state.status is JobStatus.PARTIAL


def test_the_dependents_of_a_step_with_a_failed_revision_still_run() -> None:
    job = planned(a="", b="a")
    for name in ("a", "b"):
        job.finish(name)
        job.advance()
    job.review(a="wrong")
    job.advance()
    job.finish("a", "failed")

    assert groups_of(job.advance()) == [{"b"}]
