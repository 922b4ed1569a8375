"""A job has one specialist, a workflow or a team. The router chooses if the user does not."""

from __future__ import annotations

from typing import Any

import pytest

from handoff_queue.shared.types.events import (
    AnswerMethod,
    CancelRequested,
    JobStatus,
    Parent,
    RetryRequested,
    Routed,
)
from handoff_queue.shared.types.gates import Gates
from handoff_queue.shared.types.handoff import make_ref
from handoff_queue.shared.types.ids import StepId, build_handoff_id
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.names import Role
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.specialist import RunnerKind
from handoff_queue.shared.types.step import Step
from handoff_queue.supervisor.lifecycle.answer import assemble
from handoff_queue.supervisor.lifecycle.commands import (
    ChooseAnswer,
    EndJob,
    IssueGroup,
    IssueRole,
    MakePlan,
    SetMode,
)
from handoff_queue.supervisor.lifecycle.handoffs import build_step_handoff
from handoff_queue.supervisor.lifecycle.state import Phase
from tests.doubles.handoffs import JOB, a_spec
from tests.doubles.simulated_job import SimulatedJob, a_plan

EVERYBODY = frozenset({"generalist", "legal", "researcher"})


def job_in_mode(
    mode: Mode, specialists: frozenset[str] = EVERYBODY, workflow: Plan | None = None
) -> SimulatedJob:
    job = SimulatedJob(workflow=workflow, mode=mode)
    job.specialists = specialists
    return job


def specialists_of(job: SimulatedJob) -> list[str]:
    return [step.outline.specialist for step in job.state.steps.values()]


def test_a_single_agent_gets_the_whole_request_without_planning_review_or_synthesis() -> None:
    job = job_in_mode(Mode.SINGLE)
    assert [type(command) for command in job.advance()] == [MakePlan, IssueGroup]
    assert specialists_of(job) == ["generalist"]

    job.finish("answer")
    assert job.advance() == [ChooseAnswer(AnswerMethod.SINGLE_SINK), EndJob(JobStatus.OK)]


def test_without_a_generalist_another_live_specialist_is_the_single_agent() -> None:
    job = job_in_mode(Mode.SINGLE, frozenset({"technical", "legal"}))
    job.advance()

    assert specialists_of(job) == ["legal"]


def test_an_incomplete_single_agent_is_partial() -> None:
    job = job_in_mode(Mode.SINGLE)
    job.advance()
    job.finish("answer", "partial")
    job.advance()

    assert job.state.status is JobStatus.PARTIAL


def test_auto_asks_a_router_once() -> None:
    job = job_in_mode(Mode.AUTO)

    assert job.advance() == [IssueRole(Role.ROUTER, 1)]
    assert job.advance() == []


def test_a_router_that_chooses_an_expert_lets_it_do_the_whole_job() -> None:
    job = job_in_mode(Mode.AUTO)
    job.advance()
    result = job.finish("router")
    job.append(Routed(mode=Mode.SINGLE, specialist="legal", result=result))

    assert [type(command) for command in job.advance()] == [MakePlan, IssueGroup]
    assert specialists_of(job) == ["legal"]


def test_a_router_that_chooses_a_team_has_a_planner_make_the_plan() -> None:
    job = job_in_mode(Mode.AUTO)
    job.advance()
    result = job.finish("router")
    job.append(Routed(mode=Mode.TEAM, result=result))

    assert job.advance() == [IssueRole(Role.PLANNER, 1)]


def test_a_router_that_failed_leaves_the_job_to_a_team_and_the_answer_says_so() -> None:
    job = job_in_mode(Mode.AUTO)
    job.advance()
    result = job.finish("router", "failed", error="it said nothing")
    job.append(Routed(mode=Mode.TEAM, result=result, problem="the router failed"))
    job.advance()
    job.make_plan(a="")
    job.advance()
    job.finish("a")
    job.advance()
    job.review()
    job.advance()

    answer = assemble(job.state, JobStatus.OK, job.texts, None)
    assert answer.notes == ("A team got the job: the router failed (it said nothing).",)


def test_with_only_one_specialist_no_router_is_asked() -> None:
    job = job_in_mode(Mode.AUTO, frozenset({"legal"}))

    assert [type(command) for command in job.advance()] == [SetMode, MakePlan, IssueGroup]


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.SINGLE, Mode.PIPELINE, Mode.TEAM])
def test_nothing_begins_without_workers(mode: Mode) -> None:
    job = job_in_mode(mode, frozenset())

    assert job.advance() == []


def test_the_steps_of_a_workflow_are_run_without_a_planner() -> None:
    job = job_in_mode(Mode.PIPELINE, workflow=a_plan(a="", b="a"))

    assert [type(command) for command in job.advance()] == [MakePlan, IssueGroup]
    job.finish("a")
    job.advance()
    job.finish("b")
    assert job.advance() == [IssueRole(Role.ASSESSOR, 1)]


def test_a_retry_before_a_plan_exists_routes_again() -> None:
    job = job_in_mode(Mode.AUTO)
    job.advance()
    job.append(CancelRequested())
    job.advance()
    job.append(RetryRequested())

    assert job.state.phase is Phase.ROUTING


@pytest.mark.parametrize(
    ("submitted", "plan", "compared"),
    [
        ({}, {"a": ""}, False),
        ({}, {"a": "", "b": ""}, None),
        ({"mode": Mode.ADAPTIVE}, {"a": ""}, None),
        ({"facts": make_ref("facts"), "gates": Gates()}, {"a": ""}, None),
        ({"parent": Parent(job_id=JOB, handoff_id=build_handoff_id("a", 1))}, {"a": ""}, None),
    ],
    ids=["one step", "two steps", "more steps may come", "facts", "steps of a parent"],
)
def test_the_claims_of_a_plans_only_step_are_compared_with_nothing(
    submitted: dict[str, Any], plan: dict[str, str], compared: bool | None
) -> None:
    job = SimulatedJob(**submitted)
    job.advance()
    job.make_plan(**plan)
    job.advance()

    assert job.handoffs["a.1"].compared is compared


@pytest.mark.parametrize(("runner", "compared"), [(None, False), (RunnerKind.AGENT_SDK, None)])
def test_a_runner_has_the_same_prompt_in_each_plan_because_it_caches_the_prompt_as_a_whole(
    runner: RunnerKind | None, compared: bool | None
) -> None:
    job = SimulatedJob()
    job.advance()
    job.make_plan(a="")
    step = Step(id=StepId("a"), specialist="researcher", task="Look.")
    spec = a_spec(name="researcher").model_copy(update={"runner": runner})

    handoff = build_step_handoff(job.state, step, spec, spec.content_digest, job.texts, None)
    assert handoff.compared is compared
