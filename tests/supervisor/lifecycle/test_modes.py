"""The mode of a job: one specialist, a workflow's steps, or a team, and the role that chooses it."""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.events import (
    AnswerMethod,
    CancelRequested,
    JobStatus,
    RetryRequested,
    Routed,
)
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.plan import Plan
from handoff_queue.supervisor.lifecycle.answer import assemble
from handoff_queue.supervisor.lifecycle.commands import (
    ChooseAnswer,
    EndJob,
    IssueGroup,
    IssueRole,
    MakePlan,
    Route,
)
from handoff_queue.supervisor.lifecycle.state import Phase
from tests.doubles.life import Life, a_plan

EVERYBODY = frozenset({"generalist", "legal", "researcher"})


def a_job(mode: Mode, roles: frozenset[str] = EVERYBODY, workflow: Plan | None = None) -> Life:
    life = Life(workflow=workflow, mode=mode)
    life.roles = roles
    return life


def specialists_of(life: Life) -> list[str]:
    return [step.outline.specialist for step in life.state.steps.values()]


def test_a_single_agent_gets_the_whole_request_and_nobody_plans_reviews_or_synthesises() -> None:
    life = a_job(Mode.SINGLE)
    assert [type(command) for command in life.goes_on()] == [MakePlan, IssueGroup]
    assert specialists_of(life) == ["generalist"]

    life.finishes("answer")
    assert life.goes_on() == [ChooseAnswer(AnswerMethod.SINGLE_SINK), EndJob(JobStatus.OK)]


def test_without_a_generalist_it_is_one_of_those_who_are_there() -> None:
    life = a_job(Mode.SINGLE, frozenset({"technical", "legal"}))
    life.goes_on()

    assert specialists_of(life) == ["legal"]


def test_a_single_agent_that_is_not_whole_is_partial() -> None:
    life = a_job(Mode.SINGLE)
    life.goes_on()
    life.finishes("answer", "partial")
    life.goes_on()

    assert life.state.status is JobStatus.PARTIAL


def test_auto_asks_a_router_once() -> None:
    life = a_job(Mode.AUTO)

    assert life.goes_on() == [IssueRole("router", 1)]
    assert life.goes_on() == []


def test_a_router_that_chooses_an_expert_has_it_do_the_whole_job_alone() -> None:
    life = a_job(Mode.AUTO)
    life.goes_on()
    result = life.finishes("router")
    life.happens(Routed(mode=Mode.SINGLE, specialist="legal", result=result))

    assert [type(command) for command in life.goes_on()] == [MakePlan, IssueGroup]
    assert specialists_of(life) == ["legal"]


def test_a_router_that_chooses_a_team_has_a_planner_make_the_plan() -> None:
    life = a_job(Mode.AUTO)
    life.goes_on()
    result = life.finishes("router")
    life.happens(Routed(mode=Mode.TEAM, result=result))

    assert life.goes_on() == [IssueRole("planner", 1)]


def test_a_router_that_failed_leaves_the_job_to_a_team_and_the_answer_says_so() -> None:
    life = a_job(Mode.AUTO)
    life.goes_on()
    result = life.finishes("router", "failed", error="it said nothing")
    life.happens(Routed(mode=Mode.TEAM, result=result, problem="the router failed"))
    life.goes_on()
    life.plans(a="")
    life.goes_on()
    life.finishes("a")
    life.goes_on()
    life.judges()
    life.goes_on()

    answer = assemble(life.state, JobStatus.OK, life.words, None)
    assert answer.notes == ("A team got the job: the router failed (it said nothing).",)


def test_where_there_is_only_one_specialist_nobody_has_to_choose() -> None:
    life = a_job(Mode.AUTO, frozenset({"legal"}))

    assert [type(command) for command in life.goes_on()] == [Route, MakePlan, IssueGroup]


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.SINGLE, Mode.PIPELINE, Mode.TEAM])
def test_nothing_begins_while_nobody_is_there(mode: Mode) -> None:
    life = a_job(mode, frozenset())

    assert life.goes_on() == []


def test_the_steps_of_a_workflow_are_run_without_a_planner() -> None:
    life = a_job(Mode.PIPELINE, workflow=a_plan(a="", b="a"))

    assert [type(command) for command in life.goes_on()] == [MakePlan, IssueGroup]
    life.finishes("a")
    life.goes_on()
    life.finishes("b")
    assert life.goes_on() == [IssueRole("assessor", 1)]


def test_a_retry_before_there_is_a_plan_routes_again() -> None:
    life = a_job(Mode.AUTO)
    life.goes_on()
    life.happens(CancelRequested())
    life.goes_on()
    life.happens(RetryRequested())

    assert life.state.phase is Phase.ROUTING
