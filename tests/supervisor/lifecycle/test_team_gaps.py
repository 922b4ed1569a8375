"""A team that finished a part of its step continues with its gaps. A team with another task is a
new team.
"""

from __future__ import annotations

import pytest

from handoff_queue.shared.broker.attempt_outcome import finished_event
from handoff_queue.shared.types.answer import Answer, Gap
from handoff_queue.shared.types.events import (
    HandoffIssued,
    JobStatus,
    Parent,
    ParentTold,
    RetryRequested,
    TakenUp,
)
from handoff_queue.shared.types.handoff import HandoffResult, ResultStatus, StopReason
from handoff_queue.shared.types.ids import HandoffId, JobId, StepId, child_id_for
from handoff_queue.shared.types.limits import JobLimits, NewLimits
from handoff_queue.shared.types.plan import OnFailure, Plan, Step
from handoff_queue.shared.types.usage import Usage
from handoff_queue.supervisor.lifecycle.child_results import ChildUsage, result_for_parent
from handoff_queue.supervisor.lifecycle.gaps import gaps_of, to_finish
from handoff_queue.supervisor.lifecycle.retry_rules import retry_of
from handoff_queue.supervisor.lifecycle.teams import has_gaps_alone
from tests.doubles.handoffs import JOB, a_result
from tests.doubles.life import Life, planned

TEAM = StepId("team")
FIRST, SECOND = (child_id_for(JobId(JOB), HandoffId(f"team.{attempt}")) for attempt in (1, 2))
ABOVE = JobId("j-00000000aaaa")


def a_job(*before: str) -> Life:
    """Return a job whose last step is a team's and depends on `before`. All steps are issued or
    wait.
    """
    steps = [
        Step(
            id=StepId(name), specialist="researcher", task=f"Do {name}.", on_failure=OnFailure.DROP
        )
        for name in before
    ]
    team = Step(
        id=TEAM,
        specialist="supervisor",
        task="Do it.",
        depends_on=tuple(StepId(name) for name in before),
        on_failure=OnFailure.RETRY,
    )
    life = Life(JobLimits(max_rounds=1))
    life.children[FIRST] = planned(a="").journal
    life.goes_on()
    life.plans(Plan(steps=(*steps, team)))
    life.goes_on()
    return life


def ends(life: Life, **statuses: str) -> Life:
    """Every step ends so, or well; the review passes."""
    while not life.state.ended:
        for one in sorted(life.out):
            life.judges() if one == "assessor" else life.finishes(one, statuses.get(one, "ok"))
        life.goes_on()
    return life


def again(life: Life, from_step: str | None = None, new: NewLimits | None = None) -> Life:
    life.happens(
        retry_of(
            life.state, {"max_turns": 1}, from_step, new or NewLimits(), whole=from_step is None
        )
    )
    life.goes_on()
    return life


def teams(life: Life) -> list[JobId]:
    return [event.child.job_id for event in life.events(HandoffIssued) if event.child]


def test_who_asks_for_what_is_missing_has_the_team_go_on() -> None:
    life = again(ends(a_job(), team="partial"))

    assert teams(life) == [FIRST, FIRST]
    assert life.state.open[HandoffId("team.2")].child


def test_it_goes_on_as_often_as_it_is_asked_for() -> None:
    life = ends(a_job(), team="partial")
    for _ in range(2):
        ends(again(life), team="partial")

    assert teams(life) == [FIRST] * 3


def test_who_asks_twice_before_the_team_could_begin_has_it_go_on_too() -> None:
    life = again(ends(a_job("a", "b"), b="failed", team="partial"))
    life.now = life.state.deadline  # it still waits for the other step
    life.goes_on()
    assert life.state.ended
    ends(again(life), b="failed")

    assert teams(life) == [FIRST, FIRST]


def test_who_names_the_step_wants_all_of_it_from_a_new_team() -> None:
    assert teams(again(ends(a_job(), team="partial"), TEAM)) == [FIRST, SECOND]


def test_a_team_that_would_begin_with_more_than_the_one_before_is_a_new_one() -> None:
    life = ends(again(ends(a_job("a", "b"), b="failed", team="partial")))

    assert teams(life) == [FIRST, SECOND]


def test_a_team_goes_on_where_what_it_would_begin_with_has_not_changed() -> None:
    life = ends(again(ends(a_job("a", "b"), b="failed", team="partial")), b="failed")

    assert teams(life) == [FIRST, FIRST]


def test_work_that_is_sent_back_is_no_gap() -> None:
    life = a_job()
    life.finishes(TEAM, "partial")
    life.goes_on()
    life.judges(team="It says nothing of prices.")
    life.goes_on()

    assert teams(life) == [FIRST, SECOND]


def test_what_a_team_was_to_mend_and_never_heard_of_is_no_gap() -> None:
    life = a_job()
    life.finishes(TEAM, "partial")
    life.goes_on()
    life.judges(team="It says nothing of prices.")
    life.now = life.state.deadline  # too late for another attempt
    life.goes_on()
    assert life.state.ended
    assert teams(life) == [FIRST]

    assert teams(again(life)) == [FIRST, SECOND]


def test_what_the_generalist_could_not_do_either_is_a_gap_of_the_team_when_there_is_more_to_spend() -> (
    None
):
    life = a_job()
    life.roles = life.roles | {"generalist"}
    life.finishes(TEAM, "failed", stop_reason=StopReason.MAX_TURNS)
    life.goes_on()
    ends(life, team="failed")

    assert teams(again(life, new=NewLimits(max_turns=400))) == [FIRST, FIRST]
    assert life.out == {TEAM}


def test_the_price_of_a_teams_gap_is_what_the_team_says_it_would_cost() -> None:
    life, paid = a_job("a"), Usage(input_tokens=10, output_tokens=1, cost_microusd=900)
    life.finishes("a", usage=paid)
    life.goes_on()
    life.finishes(TEAM, "partial", usage=paid, to_finish_microusd=70)
    life.goes_on()
    ends(life)

    (gap,) = gaps_of(life.state, life.words)
    assert (gap.step, gap.likely_microusd) == (TEAM, 70)
    assert to_finish(life.state) == 70


def test_a_team_that_would_begin_anew_has_the_price_of_a_whole_one() -> None:
    life, paid = a_job("a", "b"), Usage(input_tokens=10, output_tokens=1, cost_microusd=900)
    life.finishes("a", usage=paid)
    life.finishes("b", "failed")
    life.goes_on()
    life.finishes(TEAM, "partial", usage=paid, to_finish_microusd=70)
    life.goes_on()
    ends(life)

    assert {gap.step: gap.likely_microusd for gap in gaps_of(life.state, life.words)} == {
        "b": 900,
        TEAM: 900,
    }


# The team's own decisions


def a_team(*, gap: str = "b", degraded: str | None = None, **depends_on: str) -> Life:
    """It has ended without this step."""
    life = Life(
        JobLimits(max_turns=10, max_seconds=50),
        parent=Parent(job_id=ABOVE, handoff_id=HandoffId("part.1")),
        depth=1,
    )
    life.goes_on()
    life.plans(degraded=degraded, **depends_on)
    life.goes_on()
    ends(life, **{gap: "failed"})
    life.happens(ParentTold())
    return life


def taken_up(life: Life, *, is_known: bool = True) -> Life:
    parent = Parent(job_id=ABOVE, handoff_id=HandoffId("part.2"))
    life.now += 1_000
    said = TakenUp(parent=parent, max_seconds=77, is_known=is_known)
    life.happens(RetryRequested(whole=True, holds=True, max_turns=30, taken_up=said))
    life.goes_on()
    return life


def told(life: Life, answer: Answer) -> HandoffResult:
    return result_for_parent(
        life.state, life.words, answer, ChildUsage(Usage(), 2), ChildUsage(Usage(), 12)
    )


@pytest.mark.parametrize("is_degraded", [False, True])
def test_only_what_a_planner_has_planned_has_gaps_that_can_be_done_alone(
    *, is_degraded: bool
) -> None:
    life = Life()
    life.goes_on()
    assert not has_gaps_alone(life.state), "it has no plan"
    life.plans(a="", b="", degraded="no plan" if is_degraded else None)
    life.goes_on()
    ends(life, b="failed")

    assert has_gaps_alone(life.state) is not is_degraded


def test_a_team_without_gaps_has_none_to_do() -> None:
    life = Life()
    life.goes_on()
    life.plans(a="")
    life.goes_on()

    assert not has_gaps_alone(ends(life).state)


def test_a_team_that_goes_on_does_what_it_lacks_for_the_handoff_that_asks_for_it() -> None:
    life = taken_up(a_team(a="", b="", c="a b"))

    assert life.out == {"b"}
    assert life.state.submitted.parent == Parent(job_id=ABOVE, handoff_id=HandoffId("part.2"))
    assert not life.state.parent_told
    assert (life.state.submitted.limits.max_turns, life.state.deadline) == (30, life.now + 77)
    ends(life)
    issued = [event.handoff_id for event in life.events(HandoffIssued)]
    assert issued[-3:] == ["b.2", "c.2", "assessor.2"]
    assert told(life, Answer(status=JobStatus.OK, text="-")).handoff_id == "part.2"


@pytest.mark.parametrize("is_known", [False, True])
def test_an_answer_that_stands_is_no_new_result_for_a_parent_that_has_it(*, is_known: bool) -> None:
    life = ends(taken_up(a_team(a="", b=""), is_known=is_known), b="failed")
    gap = Gap(step=StepId("b"), specialist="researcher", why="it broke")

    result = told(life, Answer(status=JobStatus.PARTIAL, text="-", gaps=(gap,)))

    assert result.status is (ResultStatus.FAILED if is_known else ResultStatus.PARTIAL)
    assert result.error == f"its team {JOB} lacks b (researcher): it broke"
    assert result.turns == 2


def test_what_is_told_of_an_earlier_end_is_not_told_of_the_next_one() -> None:
    life = taken_up(a_team(a="", b=""))
    life.happens(ParentTold())

    assert not life.state.parent_told


def test_a_users_retry_is_written_as_the_version_before_can_read_it() -> None:
    assert "taken_up" not in RetryRequested(whole=True).to_json()


def test_a_team_says_what_its_gaps_would_cost_as_long_as_it_can_do_them_alone() -> None:
    answer = Answer(
        status=JobStatus.PARTIAL,
        text="-",
        gaps=(Gap(step=StepId("b"), specialist="researcher", why="-"),),
        to_finish_microusd=70,
    )
    unplanned = a_team(a="", b="", degraded="no plan")

    assert told(a_team(a="", b=""), answer).to_finish_microusd == 70
    assert told(unplanned, answer).to_finish_microusd is None


def test_who_has_no_such_price_writes_what_the_version_before_can_read() -> None:
    said, unsaid = (
        a_result("a", "It is so.").model_copy(update={"to_finish_microusd": price})
        for price in (70, None)
    )

    assert [HandoffResult.from_json(one.to_json()) for one in (said, unsaid)] == [said, unsaid]
    assert [
        "to_finish_microusd" in finished_event(one, "w").to_json() for one in (said, unsaid)
    ] == [True, False]
    assert "to_finish_microusd" not in unsaid.to_json()


def test_a_gap_that_was_tried_again_in_vain_was_not_sent_back() -> None:
    life = ends(again(ends(a_job(), team="partial")), team="failed")

    (gap,) = gaps_of(life.state, life.words)
    assert gap.why == "incomplete: it broke"


def test_what_was_used_for_the_gaps_is_told_and_all_that_was_used_is_held_against_the_limits() -> (
    None
):
    life = taken_up(a_team(a="", b=""))
    life.finishes("b", "failed", stop_reason=StopReason.JOB_BUDGET)
    life.goes_on()

    result = told(life, Answer(status=JobStatus.PARTIAL, text="-"))

    assert (result.turns, result.stop_reason) == (2, "max_turns")
