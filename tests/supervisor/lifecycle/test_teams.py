"""Teams of teams: the right to have a child job, its share of the budget, its begin, and its result
for the parent.
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
from handoff_queue.shared.types.ids import HandoffId, JobId, StepId, child_id_for
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals, Mode
from handoff_queue.shared.types.limits import JobLimits, OnLimit
from handoff_queue.shared.types.message import digest_of
from handoff_queue.shared.types.plan import OnFailure, Plan, Step, Synthesis
from handoff_queue.shared.types.usage import Usage
from handoff_queue.supervisor.lifecycle.child_results import ChildUsage, result_for_parent
from handoff_queue.supervisor.lifecycle.commands import (
    AskApproval,
    EndJob,
    IssueRole,
    IssueToChild,
    StartChild,
    TellParent,
)
from handoff_queue.supervisor.lifecycle.job_end import TELL_AGAIN_AFTER_S, next_due
from handoff_queue.supervisor.lifecycle.observations import ObservedHandoff
from handoff_queue.supervisor.lifecycle.state import StepStatus
from handoff_queue.supervisor.lifecycle.teams import bill_of, may_have_children, slice_of
from tests.doubles.handoffs import JOB
from tests.doubles.jobs import submission
from tests.doubles.life import LEASE_S, Life

ABOVE = Parent(job_id=JobId("j-00000000aaaa"), handoff_id=HandoffId("part.2"))
LIMITS = st.builds(
    JobLimits,
    max_turns=st.none() | st.integers(1, 500),
    max_tokens=st.none() | st.integers(1, 10**7),
    max_microusd=st.none() | st.integers(1, 10**8),
    max_handoffs=st.integers(1, 300),
    max_seconds=st.integers(1, 10_000),
    on_limit=st.sampled_from(OnLimit),
)


def teams(agents: int = 1, children: int = 2) -> Plan:
    """Return a plan of sub-supervisors and independent agents."""
    names = [(f"t{n}", "supervisor") for n in range(children)] + [
        (f"a{n}", "researcher") for n in range(agents)
    ]
    steps = [
        Step(id=StepId(name), specialist=who, task=f"Do {name}.", on_failure=OnFailure.RETRY)
        for name, who in names
    ]
    return Plan(steps=tuple(steps), synthesis=Synthesis.MERGE)


def planned(plan: Plan, limits: JobLimits | None = None, **submitted: Any) -> Life:
    """Its plan is made, and nothing else."""
    life = Life(limits, **submitted)
    life.goes_on()
    life.plans(plan)
    return life


@given(LIMITS, st.integers(0, 5), st.integers(1, 5))
def test_what_all_children_may_use_is_no_more_than_their_parent_may(
    limits: JobLimits, agents: int, children: int
) -> None:
    state = planned(teams(agents, children), limits).state

    each = slice_of(state)

    for name in ("max_turns", "max_tokens", "max_microusd", "max_handoffs"):
        of_child, of_parent = getattr(each, name), getattr(limits, name)
        assert (of_child is None) == (of_parent is None)
        if of_parent is not None:
            assert 1 <= of_child <= of_parent
            assert of_child * children <= of_parent or of_child == 1
    assert each.on_limit is not OnLimit.ASK


@given(LIMITS, st.integers(1, 400))
def test_a_child_gets_no_more_than_is_left_nor_more_than_the_bill_says(
    limits: JobLimits, turns: int
) -> None:
    state = planned(teams(), limits).state
    spent = state.model_copy(
        update={"turns": turns, "usage": Usage(input_tokens=turns, cost_microusd=turns)}
    )

    each, (first, *_) = slice_of(spent), bill_of(spent)

    assert limits.max_turns is None or each.max_turns in range(
        1, max(2, limits.max_turns - turns + 1)
    )
    assert bill_of(state) == bill_of(spent), "it is known before anything runs"
    assert first.max_turns is None or (each.max_turns or 0) <= first.max_turns
    assert first.max_microusd is None or (each.max_microusd or 0) <= first.max_microusd


@given(LIMITS)
def test_a_child_ends_before_its_parent_has_to_write_its_answer(limits: JobLimits) -> None:
    state = planned(teams(), limits).state

    assert state.as_of + slice_of(state).max_seconds <= max(state.working_deadline, state.as_of + 1)


def test_who_is_asked_about_a_plan_is_told_its_bill() -> None:
    life = planned(
        teams(children=1), JobLimits(max_depth=1), approvals=Approvals(what=(ApprovalOf.PLAN,))
    )

    (asked,) = life.decides()

    assert asked == AskApproval(
        ApprovalOf.PLAN, "its plan is made (2 steps: 1 sub-team of at most 159 turns each)"
    )


def test_how_deep_a_job_lies_says_whether_it_may_have_children() -> None:
    depths = [
        may_have_children(submission(limits=JobLimits(max_depth=2), depth=depth))
        for depth in range(4)
    ]

    assert depths == [True, True, False, False]
    assert not may_have_children(submission(limits=JobLimits(max_depth=0)))


def test_steps_of_sub_supervisors_begin_at_once_and_in_no_chord() -> None:
    life = planned(teams())

    commands = life.goes_on()

    assert commands[:2] == [IssueToChild(StepId("t0")), IssueToChild(StepId("t1"))]
    (one, other) = (life.state.open[HandoffId(name)] for name in ("t0.1", "t1.1"))
    assert (one.group, other.group) == (None, None)
    assert one.child
    assert one.child.job_id == child_id_for(JobId(JOB), HandoffId("t0.1"))


def test_a_child_that_has_not_begun_is_begun_again_and_one_that_has_is_left_alone() -> None:
    life = planned(teams(agents=0, children=1))
    life.goes_on()
    waits, runs = (
        life.seen(t0_1=ObservedHandoff("issued")),
        life.seen(t0_1=ObservedHandoff("running")),
    )

    assert life.decides(waits) == (StartChild(HandoffId("t0.1")),)
    assert next_due(life.state, life.now, LEASE_S, waits) == life.now + LEASE_S
    assert life.decides(runs) == ()
    assert next_due(life.state, life.now, LEASE_S, runs) == life.state.deadline


def test_a_child_that_failed_is_not_tried_again_but_given_to_the_generalist() -> None:
    life = planned(teams(agents=0, children=1))
    life.roles = life.roles | {"generalist"}
    life.goes_on()

    life.finishes("t0", "failed")
    life.goes_on()

    assert life.step("t0").given_to == "generalist"


@pytest.mark.parametrize(
    "reason", [StopReason.MAX_TURNS, StopReason.MAX_TOKENS, StopReason.MAX_USD]
)
def test_a_child_whose_slice_was_too_small_leaves_its_step_to_the_generalist(
    reason: StopReason,
) -> None:
    life = planned(teams(agents=0, children=1))
    life.roles = life.roles | {"generalist"}
    life.goes_on()

    life.finishes("t0", "failed", stop_reason=reason)
    life.goes_on()

    assert (life.step("t0").given_to, life.out) == ("generalist", {"t0"})


@pytest.mark.parametrize(
    "reason", [StopReason.MAX_USD, StopReason.FINISHED, StopReason.INVALID_OUTPUT]
)
def test_a_generalist_in_a_childs_place_tries_once(reason: StopReason) -> None:
    life = planned(teams(agents=0, children=1))
    life.roles = life.roles | {"generalist"}
    life.goes_on()
    for _ in range(2):
        life.finishes("t0", "failed", stop_reason=reason)
        life.goes_on()

    assert life.state.ended
    assert life.step("t0").attempt == 2


def test_a_replanner_looks_while_a_child_is_at_work_and_again_when_that_has_ended() -> None:
    life = planned(teams(agents=1, children=1), mode=Mode.ADAPTIVE)
    life.goes_on()

    life.finishes("a0")
    assert life.goes_on() == [IssueRole("replanner", 1)]
    life.replans()
    life.goes_on()
    life.finishes("t0")
    assert life.goes_on() == [IssueRole("replanner", 2)]


def test_nobody_is_asked_about_a_step_of_a_child() -> None:
    (step,) = teams(agents=1, children=0).steps
    plan = Plan(steps=(step.model_copy(update={"on_failure": OnFailure.ASK}),))

    def asks(life: Life) -> bool:
        life.goes_on()
        while life.step("a0").status is StepStatus.RUNNING:
            life.finishes("a0", "failed")
            life.goes_on()
        return life.state.question is not None

    assert asks(planned(plan))
    assert not asks(planned(plan, parent=ABOVE, depth=1))


# The result for the parent


def a_child(max_turns: int | None = None) -> Life:
    """One with a plan of two steps."""
    life = planned(
        Plan(
            steps=tuple(
                Step(id=StepId(name), specialist="researcher", task=f"Do {name}.")
                for name in ("a", "b")
            )
        ),
        JobLimits(max_turns=max_turns),
        parent=ABOVE,
        depth=1,
    )
    life.goes_on()
    return life


def told(life: Life, answer: Answer | None, used: Usage = Usage(), turns: int = 0) -> HandoffResult:  # noqa: B008 (frozen)
    return result_for_parent(
        life.state, life.words, answer, ChildUsage(used, turns), ChildUsage(used, turns)
    )


def a_claim(step: str, quote: str) -> Claim:
    source = Citation(
        source="notes.md", digest=digest_of(quote), start=0, end=len(quote), quote=quote
    )
    return Claim(
        id=f"{step}.c1", text=quote, sources=(source,), subject="it", attribute="price", value="9"
    )


def test_the_answer_of_a_child_is_a_result_whose_claims_bear_the_name_of_the_step() -> None:
    life = a_child()
    life.finishes("a", output="Nine [a.c1].", claims=(a_claim("a", "nine"),))
    life.finishes("b", output="Ten [b.c1] [b.c7].", claims=(a_claim("b", "ten"),))
    life.goes_on()
    life.judges()
    life.goes_on()

    result = told(life, Answer(status=JobStatus.OK, text="-"), Usage(input_tokens=7), 4)

    assert (result.handoff_id, result.job_id, result.step_id, result.attempt) == (
        "part.2",
        ABOVE.job_id,
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
    assert [(one.id, one.text, one.value) for one in result.claims] == [
        ("part.c1", "nine", "9"),
        ("part.c2", "ten", "9"),
    ]
    assert all(one.sources for one in result.claims)


def test_a_child_without_an_answer_is_a_failed_result_that_says_why() -> None:
    life = a_child()
    life.finishes("a", "failed", error="it broke")
    life.finishes("b", "failed", error="it broke")
    life.goes_on()

    result = told(life, None)

    assert (result.status, result.output) == (ResultStatus.FAILED, None)
    assert result.error == f"its team {JOB}: it broke"


def test_a_slice_that_is_spent_is_a_limit_of_the_step_and_a_budget_above_it_the_parents() -> None:
    reasons = []
    for spent in (StopReason.JOB_BUDGET, StopReason.PARENT_BUDGET, StopReason.DAY_BUDGET):
        life = a_child(max_turns=4)
        life.finishes("a", "failed", stop_reason=spent)
        life.finishes("b", "failed", stop_reason=spent)
        life.goes_on()
        reasons.append(told(life, None, turns=4).stop_reason)

    assert reasons == [StopReason.MAX_TURNS, StopReason.JOB_BUDGET, StopReason.DAY_BUDGET]


def test_a_child_that_stops_for_its_slice_says_how_small_it_was() -> None:
    life = planned(
        teams(agents=1, children=0),
        JobLimits(max_turns=88, max_microusd=320_000),
        parent=ABOVE,
        depth=1,
    )
    life.goes_on()
    life.finishes("a0", "failed", stop_reason=StopReason.JOB_BUDGET)
    life.goes_on()

    why = f"its team {JOB}: its share of the budget (88 turns, $0.32) was too small, and no step has a usable result"
    assert told(life, None).error == why


def test_a_parent_is_told_until_it_is_written_down_that_it_was() -> None:
    life = a_child()
    life.happens(CancelRequested(by=ABOVE.job_id))
    life.goes_on()

    assert life.events(JobEnded)[0] == JobEnded(
        status=JobStatus.CANCELLED, reason=f"{ABOVE.job_id} does not wait for it any more"
    )
    assert life.decides() == (TellParent(),)
    assert next_due(life.state, life.now, LEASE_S) == life.now + TELL_AGAIN_AFTER_S
    assert told(life, None).stop_reason is StopReason.CANCELLED
    life.happens(ParentTold())
    assert life.decides() == ()
    assert next_due(life.state, life.now, LEASE_S) is None


def test_a_job_of_a_user_has_nobody_to_tell() -> None:
    life = Life()
    life.happens(CancelRequested())

    assert life.goes_on() == [EndJob(JobStatus.CANCELLED, "cancelled by the user")]
