"""A fork keeps the results before its first step, and never repeats an effect unasked."""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.errors import UserError
from handoff_queue.shared.types.events import (
    Fork,
    Parent,
    RecordedEvent,
)
from handoff_queue.shared.types.handoff import Claim, ResultStatus, StopReason
from handoff_queue.shared.types.ids import HandoffId, JobId, StepId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.origins import DOCUMENT, USER, WEB
from handoff_queue.shared.types.plan import Plan
from handoff_queue.supervisor.lifecycle.answer import is_plan_of_user
from handoff_queue.supervisor.lifecycle.forks import build_fork, build_fork_plan, list_kept_steps
from handoff_queue.supervisor.lifecycle.reduce import fold
from handoff_queue.supervisor.lifecycle.state import JobState, StepStatus
from handoff_queue.supervisor.roles.role_events import make_plan_event
from tests.doubles.simulated_job import SimulatedJob, a_plan, planned
from tests.supervisor.lifecycle.test_citation_numbers import citation_of, claim_of

PLAN = a_plan(read="", write="read", send="write")


def ended_job(claims: tuple[Claim, ...] = (), **acted: bool) -> SimulatedJob:
    """Return an ended job with the steps of `PLAN`.

    Args:
        claims: the claims of the step `read`.
        acted: the steps that may have acted.
    """
    job = planned(read="", write="read", send="write")
    for step in ("read", "write", "send"):
        reason = StopReason.FINISHED
        own_claims = claims if step == "read" else ()
        job.finish(step, "ok", stop_reason=reason, acted=acted.get(step), claims=own_claims)
        job.advance()
    job.review()
    job.advance()
    assert job.state.ended
    return job


def forked(state: JobState, fork: Fork, plan: Plan = PLAN) -> JobState:
    """Return the state of a fork that has its plan."""
    made, _ = make_plan_event(plan, origins=fork.task_origins)
    submitted = state.submitted.model_copy(
        update={"fork": fork, "workflow": made.plan, "mode": Mode.PIPELINE}
    )
    events = [RecordedEvent(1, 1.0, submitted), RecordedEvent(2, 2.0, made)]
    after = fold(JobId("j-abcdef012345"), None, events)
    assert after is not None
    return after


def test_a_fork_begins_with_the_results_that_do_not_depend_on_its_first_step() -> None:
    state = ended_job().state

    steps = forked(state, build_fork(state, "write", {})).steps

    assert steps[StepId("read")].result == state.steps[StepId("read")].result
    assert steps[StepId("read")].result_status is ResultStatus.OK
    assert [steps[StepId(name)].status for name in ("write", "send")] == [StepStatus.WAITING] * 2


def test_only_the_steps_with_results_of_the_forked_job_are_kept() -> None:
    state = ended_job().state
    fork = build_fork(state, "write", {})

    assert list_kept_steps(state) == []
    assert list_kept_steps(forked(state, fork)) == ["read"]
    assert list_kept_steps(forked(state, fork, a_plan(read="", write="read"))) == ["read"]


def test_a_fork_knows_the_passages_of_its_kept_results() -> None:
    job = ended_job(claims=(claim_of("read.c1", citation_of("one.md")),))

    steps = forked(job.state, build_fork(job.state, "write", {})).steps

    assert steps[StepId("read")].passages
    assert steps[StepId("read")].passages == job.state.steps[StepId("read")].passages


def test_a_fork_keeps_the_claims_of_all_attempts_at_a_kept_step() -> None:
    """Other results may restate a claim of an earlier attempt."""
    job = planned(read="", other="")
    first = job.finish("read", claims=(claim_of("read.c1", citation_of("one.md")),))
    job.finish("other")
    job.advance()
    job.review(read="Add the year.")
    job.advance()
    second = job.finish("read", claims=(claim_of("read.c2", citation_of("one.md")),))
    job.advance()
    job.review()
    job.advance()

    plan = a_plan(read="", other="")
    once = forked(job.state, build_fork(job.state, "other", {}), plan)
    ended = once.model_copy(update={"ended": job.state.ended})
    twice = forked(ended, build_fork(ended, "other", {}), plan)

    for state in (job.state, once, twice):
        assert state.steps[StepId("read")].results_with_claims == (first, second)


def test_a_fork_of_a_fork_knows_that_a_planner_made_the_plan() -> None:
    once = forked(ended_job().state, build_fork(ended_job().state, "write", {}))
    ended = once.model_copy(update={"ended": ended_job().state.ended})

    twice = forked(ended, build_fork(ended, "send", {}))

    assert not is_plan_of_user(twice)


def test_a_fork_of_a_workflow_knows_that_a_user_made_the_plan() -> None:
    state = ended_job().state.model_copy(update={"mode": Mode.PIPELINE})

    assert is_plan_of_user(forked(state, build_fork(state, "write", {})))


def test_a_fork_that_would_repeat_an_effect_is_refused() -> None:
    state = ended_job(send=True).state

    with pytest.raises(UserError, match=r"repeat step send .* which may have acted on the world"):
        build_fork(state, "write", {})


def test_a_person_names_the_step_that_acts_again() -> None:
    state = ended_job(send=True).state

    assert [kept.step for kept in build_fork(state, "send", {}).kept] == ["read", "write"]


def test_a_kept_step_that_acted_does_not_run_at_a_retry_of_the_fork() -> None:
    state = ended_job(read=True).state

    after = forked(state, build_fork(state, "write", {}))

    assert after.steps[StepId("read")].acted


def test_a_child_job_is_not_forked() -> None:
    state = ended_job().state
    parent = Parent(job_id=JobId("j-000000000000"), handoff_id=HandoffId("team.1"))
    child = state.model_copy(
        update={"submitted": state.submitted.model_copy(update={"parent": parent})}
    )

    with pytest.raises(UserError, match="fork the parent job"):
        build_fork(child, "write", {})


def test_the_roles_of_a_fork_see_the_origins_of_the_kept_results() -> None:
    state = ended_job().state
    read = state.steps[StepId("read")].model_copy(update={"origins": (WEB,)})
    tainted = state.model_copy(update={"steps": {**state.steps, StepId("read"): read}})

    after = forked(state, build_fork(tainted, "write", {}))

    assert WEB in after.origins
    assert after.steps[StepId("read")].origins == (WEB,)


def test_tasks_of_a_planner_that_read_documents_keep_their_origins() -> None:
    state = ended_job().state
    assert state.plan is not None
    outlines = tuple(
        outline.model_copy(update={"origins": (DOCUMENT, USER)}) for outline in state.plan.steps
    )
    tainted = state.model_copy(update={"plan": state.plan.model_copy(update={"steps": outlines})})

    after = forked(state, build_fork(tainted, "write", {}))

    assert after.steps[StepId("write")].outline.origins == (DOCUMENT, USER)


def test_only_the_first_step_of_a_fork_has_the_new_task() -> None:
    fork = build_fork(ended_job().state, "write", {})

    tasks = {step.id: step.task for step in build_fork_plan(PLAN, fork, "Write less.").steps}

    assert tasks == {step.id: step.task for step in PLAN.steps} | {"write": "Write less."}


def test_a_fork_whose_plan_a_person_edited_runs_all_steps() -> None:
    state = ended_job().state
    fork = build_fork(state, "write", {})
    made, _ = make_plan_event(PLAN)
    other, _ = make_plan_event(a_plan(read="", write="read"))
    submitted = state.submitted.model_copy(update={"fork": fork, "workflow": made.plan})

    after = fold(
        JobId("j-abcdef012345"),
        None,
        [RecordedEvent(1, 1.0, submitted), RecordedEvent(2, 2.0, other)],
    )

    assert after is not None
    assert {step.status for step in after.steps.values()} == {StepStatus.WAITING}


def test_a_fork_uses_its_own_specialists_also_after_a_retry() -> None:
    state = ended_job().state
    fork = build_fork(state, "write", {"generalist": "0" * 64})

    assert forked(state, fork).specialists == {"generalist": "0" * 64}
