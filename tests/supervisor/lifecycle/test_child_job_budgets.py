"""A plan may give steps to child jobs. Each child job gets a share of the budget and reports
one result.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.types.answer import Answer
from handoff_queue.shared.types.events import (
    CancelRequested,
    JobEnded,
    JobStatus,
    Parent,
    ParentTold,
)
from handoff_queue.shared.types.handoff import (
    Citation,
    Claim,
    HandoffResult,
    ResultStatus,
    StopReason,
)
from handoff_queue.shared.types.ids import HandoffId, JobId, StepId, derive_child_id
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals, Mode
from handoff_queue.shared.types.limits import JobLimits, OnLimit
from handoff_queue.shared.types.message import compute_digest
from handoff_queue.shared.types.names import Role
from handoff_queue.shared.types.plan import Plan, Synthesis
from handoff_queue.shared.types.step import OnFailure, Step
from handoff_queue.shared.types.usage import Usage
from handoff_queue.supervisor.lifecycle.child_jobs import (
    build_bill,
    compute_child_limits,
    may_have_children,
)
from handoff_queue.supervisor.lifecycle.child_results import ChildUsage, build_result_for_parent
from handoff_queue.supervisor.lifecycle.commands import (
    AskApproval,
    EndJob,
    IssueRole,
    IssueToChild,
    StartChild,
    TellParent,
)
from handoff_queue.supervisor.lifecycle.job_end import TELL_AGAIN_AFTER_S, compute_next_due
from handoff_queue.supervisor.lifecycle.observations import ObservedHandoff
from handoff_queue.supervisor.lifecycle.state import StepStatus
from tests.doubles.handoffs import JOB
from tests.doubles.jobs import submission
from tests.doubles.simulated_job import LEASE_S, SimulatedJob

PARENT = Parent(job_id=JobId("j-00000000aaaa"), handoff_id=HandoffId("part.2"))
LIMITS = st.builds(
    JobLimits,
    max_turns=st.none() | st.integers(1, 500),
    max_tokens=st.none() | st.integers(1, 10**7),
    max_microusd=st.none() | st.integers(1, 10**8),
    max_handoffs=st.integers(1, 300),
    max_seconds=st.integers(1, 10_000),
    on_limit=st.sampled_from(OnLimit),
)


def plan_with_teams(agents: int = 1, children: int = 2) -> Plan:
    """Return a plan of child jobs and independent agents."""
    names = [(f"t{n}", "supervisor") for n in range(children)] + [
        (f"a{n}", "researcher") for n in range(agents)
    ]
    steps = [
        Step(id=StepId(name), specialist=specialist, task=f"Do {name}.", on_failure=OnFailure.RETRY)
        for name, specialist in names
    ]
    return Plan(steps=tuple(steps), synthesis=Synthesis.MERGE)


def planned_job(plan: Plan, limits: JobLimits | None = None, **submitted: Any) -> SimulatedJob:
    """Return a job with this plan, before its first step is issued."""
    job = SimulatedJob(limits, **submitted)
    job.advance()
    job.make_plan(plan)
    return job


@given(LIMITS, st.integers(0, 5), st.integers(1, 5))
def test_the_limits_of_all_children_never_exceed_their_parents_limits(
    limits: JobLimits, agents: int, children: int
) -> None:
    state = planned_job(plan_with_teams(agents, children), limits).state

    each = compute_child_limits(state)

    for name in ("max_turns", "max_tokens", "max_microusd", "max_handoffs"):
        of_child, of_parent = getattr(each, name), getattr(limits, name)
        assert (of_child is None) == (of_parent is None)
        if of_parent is not None:
            assert 1 <= of_child <= of_parent
            assert of_child * children <= of_parent or of_child == 1
    assert each.on_limit is not OnLimit.ASK


@given(LIMITS, st.integers(1, 400))
def test_a_child_gets_at_most_the_rest_and_at_most_the_bill(limits: JobLimits, turns: int) -> None:
    state = planned_job(plan_with_teams(), limits).state
    spent = state.model_copy(
        update={"turns": turns, "usage": Usage(input_tokens=turns, cost_microusd=turns)}
    )

    each, (first, *_) = compute_child_limits(spent), build_bill(spent)

    assert limits.max_turns is None or each.max_turns in range(
        1, max(2, limits.max_turns - turns + 1)
    )
    assert build_bill(state) == build_bill(spent), "it is known before anything runs"
    assert first.max_turns is None or (each.max_turns or 0) <= first.max_turns
    assert first.max_microusd is None or (each.max_microusd or 0) <= first.max_microusd


@given(LIMITS)
def test_a_child_ends_before_its_parent_has_to_write_its_answer(limits: JobLimits) -> None:
    state = planned_job(plan_with_teams(), limits).state

    assert state.as_of + compute_child_limits(state).max_seconds <= max(
        state.working_deadline, state.as_of + 1
    )


def test_a_question_about_a_plan_includes_its_bill() -> None:
    job = planned_job(
        plan_with_teams(children=1),
        JobLimits(max_depth=1),
        approvals=Approvals(what=(ApprovalOf.PLAN,)),
    )

    (question,) = job.next_commands()

    assert question == AskApproval(
        ApprovalOf.PLAN, "its plan is made (2 steps: 1 child job of at most 159 turns each)"
    )


def test_the_depth_of_a_job_determines_whether_it_may_have_children() -> None:
    depths = [
        may_have_children(submission(limits=JobLimits(max_depth=2), depth=depth))
        for depth in range(4)
    ]

    assert depths == [True, True, False, False]
    assert not may_have_children(submission(limits=JobLimits(max_depth=0)))


def test_steps_of_sub_supervisors_begin_at_once_and_in_no_chord() -> None:
    job = planned_job(plan_with_teams())

    commands = job.advance()

    assert commands[:2] == [IssueToChild(StepId("t0")), IssueToChild(StepId("t1"))]
    first, second = (job.state.open[HandoffId(name)] for name in ("t0.1", "t1.1"))
    assert (first.group, second.group) == (None, None)
    assert first.child
    assert first.child.job_id == derive_child_id(JobId(JOB), HandoffId("t0.1"))


def test_an_unbegun_child_is_started_again_and_a_begun_child_is_left_alone() -> None:
    job = planned_job(plan_with_teams(agents=0, children=1))
    job.advance()
    waits, runs = (
        job.observations(t0_1=ObservedHandoff("issued")),
        job.observations(t0_1=ObservedHandoff("running")),
    )

    assert job.next_commands(waits) == (StartChild(HandoffId("t0.1")),)
    assert compute_next_due(job.state, job.now, LEASE_S, waits) == job.now + LEASE_S
    assert job.next_commands(runs) == ()
    assert compute_next_due(job.state, job.now, LEASE_S, runs) == job.state.deadline


def test_a_child_that_failed_is_not_tried_again_but_given_to_the_generalist() -> None:
    job = planned_job(plan_with_teams(agents=0, children=1))
    job.specialists = job.specialists | {"generalist"}
    job.advance()

    job.finish("t0", "failed")
    job.advance()

    assert job.step("t0").given_to == "generalist"


@pytest.mark.parametrize(
    "reason", [StopReason.MAX_TURNS, StopReason.MAX_TOKENS, StopReason.MAX_USD]
)
def test_a_child_with_too_small_a_share_leaves_its_step_to_the_generalist(
    reason: StopReason,
) -> None:
    job = planned_job(plan_with_teams(agents=0, children=1))
    job.specialists = job.specialists | {"generalist"}
    job.advance()

    job.finish("t0", "failed", stop_reason=reason)
    job.advance()

    assert (job.step("t0").given_to, job.open_names) == ("generalist", {"t0"})


@pytest.mark.parametrize(
    "reason", [StopReason.MAX_USD, StopReason.FINISHED, StopReason.INVALID_OUTPUT]
)
def test_a_generalist_in_a_childs_place_tries_once(reason: StopReason) -> None:
    job = planned_job(plan_with_teams(agents=0, children=1))
    job.specialists = job.specialists | {"generalist"}
    job.advance()
    for _ in range(2):
        job.finish("t0", "failed", stop_reason=reason)
        job.advance()

    assert job.state.ended
    assert job.step("t0").attempt == 2


def test_a_replanner_runs_while_a_child_works_and_again_after_its_end() -> None:
    job = planned_job(plan_with_teams(agents=1, children=1), mode=Mode.ADAPTIVE)
    job.advance()

    job.finish("a0")
    assert job.advance() == [IssueRole(Role.REPLANNER, 1)]
    job.patch_plan()
    job.advance()
    job.finish("t0")
    assert job.advance() == [IssueRole(Role.REPLANNER, 2)]


def test_no_person_is_asked_about_a_step_of_a_child() -> None:
    (step,) = plan_with_teams(agents=1, children=0).steps
    plan = Plan(steps=(step.model_copy(update={"on_failure": OnFailure.ASK}),))

    def asks(job: SimulatedJob) -> bool:
        job.advance()
        while job.step("a0").status is StepStatus.RUNNING:
            job.finish("a0", "failed")
            job.advance()
        return job.state.question is not None

    assert asks(planned_job(plan))
    assert not asks(planned_job(plan, parent=PARENT, depth=1))


# The result for the parent


def child_job(max_turns: int | None = None) -> SimulatedJob:
    """Return a child job with a plan of two steps."""
    job = planned_job(
        Plan(
            steps=tuple(
                Step(id=StepId(name), specialist="researcher", task=f"Do {name}.")
                for name in ("a", "b")
            )
        ),
        JobLimits(max_turns=max_turns),
        parent=PARENT,
        depth=1,
    )
    job.advance()
    return job


NO_USAGE = Usage()


def parent_result(
    job: SimulatedJob, answer: Answer | None, used: Usage = NO_USAGE, turns: int = 0
) -> HandoffResult:
    return build_result_for_parent(
        job.state, job.texts, answer, ChildUsage(used, turns), ChildUsage(used, turns)
    )


def claim_of(step: str, quote: str) -> Claim:
    source = Citation(
        source="notes.md", digest=compute_digest(quote), start=0, end=len(quote), quote=quote
    )
    return Claim(
        id=f"{step}.c1", text=quote, sources=(source,), subject="it", attribute="price", value="9"
    )


def test_a_childs_answer_is_a_result_whose_claims_have_the_steps_name() -> None:
    job = child_job()
    job.finish("a", output="Nine [a.c1].", claims=(claim_of("a", "nine"),))
    job.finish("b", output="Ten [b.c1] [b.c7].", claims=(claim_of("b", "ten"),))
    job.advance()
    job.review()
    job.advance()

    result = parent_result(job, Answer(status=JobStatus.OK, text="-"), Usage(input_tokens=7), 4)

    assert (result.handoff_id, result.job_id, result.step_id, result.attempt) == (
        "part.2",
        PARENT.job_id,
        "part",
        2,
    )
    assert (result.status, result.stop_reason, result.turns, result.usage.input_tokens) == (
        "ok",
        "finished",
        4,
        7,
    )
    assert result.output == "## a\n\nNine [part.c1].\n\n## b\n\nTen [part.c2] [no source]."
    assert [(claim.id, claim.text, claim.value) for claim in result.claims] == [
        ("part.c1", "nine", "9"),
        ("part.c2", "ten", "9"),
    ]
    assert all(claim.sources for claim in result.claims)


def test_a_child_without_an_answer_is_a_failed_result_that_says_why() -> None:
    job = child_job()
    job.finish("a", "failed", error="it broke")
    job.finish("b", "failed", error="it broke")
    job.advance()

    result = parent_result(job, None)

    assert (result.status, result.output) == (ResultStatus.FAILED, None)
    assert result.error == f"its child job {JOB}: it broke"


def test_a_spent_share_is_a_limit_of_the_step_and_a_spent_budget_above_is_the_parents() -> None:
    reasons = []
    for spent in (StopReason.JOB_BUDGET, StopReason.PARENT_BUDGET, StopReason.DAY_BUDGET):
        job = child_job(max_turns=4)
        job.finish("a", "failed", stop_reason=spent)
        job.finish("b", "failed", stop_reason=spent)
        job.advance()
        reasons.append(parent_result(job, None, turns=4).stop_reason)

    assert reasons == [StopReason.MAX_TURNS, StopReason.JOB_BUDGET, StopReason.DAY_BUDGET]


def test_a_child_stopped_by_its_share_reports_the_size_of_the_share() -> None:
    job = planned_job(
        plan_with_teams(agents=1, children=0),
        JobLimits(max_turns=88, max_microusd=320_000),
        parent=PARENT,
        depth=1,
    )
    job.advance()
    job.finish("a0", "failed", stop_reason=StopReason.JOB_BUDGET)
    job.advance()

    why = (
        f"its child job {JOB}: its share of the budget (88 turns, $0.32) was too small, and no step"
        " has a usable result"
    )
    assert parent_result(job, None).error == why


def test_a_child_reports_to_its_parent_until_the_report_is_recorded() -> None:
    job = child_job()
    job.append(CancelRequested(by=PARENT.job_id))
    job.advance()

    assert job.events(JobEnded)[0] == JobEnded(
        status=JobStatus.CANCELLED, reason=f"{PARENT.job_id} does not wait for it any more"
    )
    assert job.next_commands() == (TellParent(),)
    assert compute_next_due(job.state, job.now, LEASE_S) == job.now + TELL_AGAIN_AFTER_S
    assert parent_result(job, None).stop_reason is StopReason.CANCELLED
    job.append(ParentTold())
    assert job.next_commands() == ()
    assert compute_next_due(job.state, job.now, LEASE_S) is None


def test_a_users_job_has_no_parent_to_report_to() -> None:
    job = SimulatedJob()
    job.append(CancelRequested())

    assert job.advance() == [EndJob(JobStatus.CANCELLED, "cancelled by the user")]
