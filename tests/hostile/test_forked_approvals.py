"""A fork makes another answer. What a person approved for the forked job is not approved for it."""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.events import ApprovalAsked
from handoff_queue.shared.types.handoff import StopReason, make_ref
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals
from handoff_queue.supervisor.client.forks import ForkOptions, build_fork_submission
from handoff_queue.supervisor.lifecycle.forks import build_fork, build_fork_plan
from handoff_queue.supervisor.lifecycle.state import JobState
from tests.doubles.simulated_job import SimulatedJob, a_plan

PLAN = a_plan(read="", write="read")
EVERY_APPROVAL = (ApprovalOf.PLAN, ApprovalOf.RESEARCH, ApprovalOf.ANSWER)
OTHER_TASK = "Write to all customers that we close."


def asked_in(job: SimulatedJob) -> list[ApprovalOf]:
    """Return the subjects of all questions of a job."""
    return [event.what for event in job.events(ApprovalAsked)]


def work_and_approve(job: SimulatedJob) -> None:
    """Advance a job to its end. A person approves each question."""
    for _ in range(20):
        job.advance()
        if job.state.ended:
            return
        if job.state.question is not None:
            job.approve()
        elif "assessor" in job.open_names:
            job.review()
        else:
            for step in job.open_names:
                job.finish(step, "ok", stop_reason=StopReason.FINISHED)
    raise AssertionError(f"the job has not ended: {job.open_names}")


@pytest.fixture
def approved() -> SimulatedJob:
    """Return an ended job whose plan, research and answer a person has approved."""
    job = SimulatedJob(approvals=Approvals(what=EVERY_APPROVAL))
    job.advance()
    job.make_plan(PLAN)
    work_and_approve(job)
    assert asked_in(job) == list(EVERY_APPROVAL)
    return job


def forked(state: JobState, task: str | None = None) -> SimulatedJob:
    """Return the fork from the step `write`, before its first decision."""
    fork = build_fork(state, "write", {}, has_new_task=task is not None)
    plan = build_fork_plan(PLAN, fork, task)
    event = build_fork_submission(state, fork, make_ref(plan.to_json()), ForkOptions(task=task))
    fields = {name: getattr(event, name) for name in ("approvals", "fork", "mode", "is_reviewed")}
    return SimulatedJob(event.limits, plan, **fields)


def test_the_research_and_the_answer_of_a_fork_need_their_own_approvals(
    approved: SimulatedJob,
) -> None:
    fork = forked(approved.state)
    work_and_approve(fork)
    assert asked_in(fork) == [ApprovalOf.RESEARCH, ApprovalOf.ANSWER]


def test_a_plan_with_another_task_needs_an_approval(approved: SimulatedJob) -> None:
    fork = forked(approved.state, OTHER_TASK)
    fork.advance()
    assert asked_in(fork) == [ApprovalOf.PLAN]


def test_a_fork_of_a_fork_with_another_task_needs_an_approval_of_its_plan(
    approved: SimulatedJob,
) -> None:
    first = forked(approved.state)
    work_and_approve(first)
    second = forked(first.state, OTHER_TASK)
    second.advance()
    assert asked_in(second) == [ApprovalOf.PLAN]


def test_a_step_with_an_effect_begins_again_only_after_an_approval(approved: SimulatedJob) -> None:
    fork = forked(approved.state)
    fork.acting = frozenset({PLAN.by_id[StepId("write")].specialist})
    fork.advance()
    assert asked_in(fork) == [ApprovalOf.STEP]
