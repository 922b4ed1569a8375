"""A team that finished a part of its step continues with its gaps. Another task gets a new team."""

from __future__ import annotations

import pytest

from handoff_queue.shared.broker.attempt_outcome import build_handoff_finished_event
from handoff_queue.shared.types.answer import Answer, Gap
from handoff_queue.shared.types.events import (
    Continuation,
    HandoffIssued,
    JobStatus,
    Parent,
    ParentTold,
    RetryRequested,
)
from handoff_queue.shared.types.handoff import HandoffResult, ResultStatus, StopReason
from handoff_queue.shared.types.ids import HandoffId, JobId, StepId, derive_child_id
from handoff_queue.shared.types.limits import JobLimits, NewLimits
from handoff_queue.shared.types.plan import Plan
from handoff_queue.shared.types.step import OnFailure, Step
from handoff_queue.shared.types.usage import Usage
from handoff_queue.supervisor.lifecycle.child_jobs import has_gaps_alone
from handoff_queue.supervisor.lifecycle.child_results import ChildUsage, build_result_for_parent
from handoff_queue.supervisor.lifecycle.gaps import find_gaps, to_finish
from handoff_queue.supervisor.lifecycle.job_retry import build_retry
from tests.doubles.handoffs import JOB, a_result
from tests.doubles.simulated_job import SimulatedJob, planned

TEAM = StepId("team")
FIRST, SECOND = (derive_child_id(JobId(JOB), HandoffId(f"team.{attempt}")) for attempt in (1, 2))
PARENT_ID = JobId("j-00000000aaaa")


def job_with_team(*before: str) -> SimulatedJob:
    """Return a job with the steps `before` and a team's step that depends on them."""
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
    job = SimulatedJob(JobLimits(max_rounds=1))
    job.children[FIRST] = planned(a="").journal
    job.advance()
    job.make_plan(Plan(steps=(*steps, team)))
    job.advance()
    return job


def run_to_end(job: SimulatedJob, **statuses: str) -> SimulatedJob:
    """Run the job to its end. Results are `ok` unless `statuses` names another status."""
    while not job.state.ended:
        for name in sorted(job.open_names):
            job.review() if name == "assessor" else job.finish(name, statuses.get(name, "ok"))
        job.advance()
    return job


def retry_job(
    job: SimulatedJob, from_step: str | None = None, new: NewLimits | None = None
) -> SimulatedJob:
    job.append(build_retry(job.state, {"max_turns": 1}, from_step, new or NewLimits()))
    job.advance()
    return job


def team_jobs(job: SimulatedJob) -> list[JobId]:
    return [event.child.job_id for event in job.events(HandoffIssued) if event.child]


def test_a_finish_lets_the_team_continue_its_gaps() -> None:
    job = retry_job(run_to_end(job_with_team(), team="partial"))

    assert team_jobs(job) == [FIRST, FIRST]
    assert job.state.open[HandoffId("team.2")].child


def test_a_team_continues_as_often_as_requested() -> None:
    job = run_to_end(job_with_team(), team="partial")
    for _ in range(2):
        run_to_end(retry_job(job), team="partial")

    assert team_jobs(job) == [FIRST] * 3


def test_a_second_request_before_the_team_could_begin_lets_it_continue_too() -> None:
    job = retry_job(run_to_end(job_with_team("a", "b"), b="failed", team="partial"))
    job.now = job.state.deadline  # it still waits for the other step
    job.advance()
    assert job.state.ended
    run_to_end(retry_job(job), b="failed")

    assert team_jobs(job) == [FIRST, FIRST]


def test_a_retry_from_the_step_gets_a_new_team_for_the_whole_step() -> None:
    assert team_jobs(retry_job(run_to_end(job_with_team(), team="partial"), TEAM)) == [
        FIRST,
        SECOND,
    ]


def test_a_team_with_additional_inputs_is_a_new_team() -> None:
    job = run_to_end(retry_job(run_to_end(job_with_team("a", "b"), b="failed", team="partial")))

    assert team_jobs(job) == [FIRST, SECOND]


def test_a_team_continues_if_its_inputs_have_not_changed() -> None:
    job = run_to_end(
        retry_job(run_to_end(job_with_team("a", "b"), b="failed", team="partial")), b="failed"
    )

    assert team_jobs(job) == [FIRST, FIRST]


def test_work_that_is_sent_back_is_not_a_gap() -> None:
    job = job_with_team()
    job.finish(TEAM, "partial")
    job.advance()
    job.review(team="It says nothing of prices.")
    job.advance()

    assert team_jobs(job) == [FIRST, SECOND]


def test_an_unsent_revision_of_a_team_is_not_a_gap() -> None:
    job = job_with_team()
    job.finish(TEAM, "partial")
    job.advance()
    job.review(team="It says nothing of prices.")
    job.now = job.state.deadline  # too late for another attempt
    job.advance()
    assert job.state.ended
    assert team_jobs(job) == [FIRST]

    assert team_jobs(retry_job(job)) == [FIRST, SECOND]


def test_a_failed_generalist_leaves_a_gap_for_the_team_with_more_budget() -> None:
    job = job_with_team()
    job.specialists = job.specialists | {"generalist"}
    job.finish(TEAM, "failed", stop_reason=StopReason.MAX_TURNS)
    job.advance()
    run_to_end(job, team="failed")

    assert team_jobs(retry_job(job, new=NewLimits(max_turns=400))) == [FIRST, FIRST]
    assert job.open_names == {TEAM}


def test_the_price_of_a_teams_gap_comes_from_the_team() -> None:
    job, paid = job_with_team("a"), Usage(input_tokens=10, output_tokens=1, cost_microusd=900)
    job.finish("a", usage=paid)
    job.advance()
    job.finish(TEAM, "partial", usage=paid, to_finish_microusd=70)
    job.advance()
    run_to_end(job)

    (gap,) = find_gaps(job.state, job.texts)
    assert (gap.step, gap.likely_microusd) == (TEAM, 70)
    assert to_finish(job.state) == 70


def test_a_team_that_would_start_again_has_the_price_of_a_whole_team() -> None:
    job, paid = job_with_team("a", "b"), Usage(input_tokens=10, output_tokens=1, cost_microusd=900)
    job.finish("a", usage=paid)
    job.finish("b", "failed")
    job.advance()
    job.finish(TEAM, "partial", usage=paid, to_finish_microusd=70)
    job.advance()
    run_to_end(job)

    assert {gap.step: gap.likely_microusd for gap in find_gaps(job.state, job.texts)} == {
        "b": 900,
        TEAM: 900,
    }


# Decisions of the team


def ended_team(*, gap: str = "b", degraded: str | None = None, **depends_on: str) -> SimulatedJob:
    """Return the ended job of a team in which the step `gap` failed."""
    job = SimulatedJob(
        JobLimits(max_turns=10, max_seconds=50),
        parent=Parent(job_id=PARENT_ID, handoff_id=HandoffId("part.1")),
        depth=1,
    )
    job.advance()
    job.make_plan(degraded=degraded, **depends_on)
    job.advance()
    run_to_end(job, **{gap: "failed"})
    job.append(ParentTold())
    return job


def continue_team(job: SimulatedJob, *, is_known: bool = True) -> SimulatedJob:
    parent = Parent(job_id=PARENT_ID, handoff_id=HandoffId("part.2"))
    job.now += 1_000
    event = Continuation(parent=parent, max_seconds=77, is_known=is_known)
    job.append(
        RetryRequested(fills_gaps=True, keeps_results=True, max_turns=30, continuation=event)
    )
    job.advance()
    return job


def parent_result(job: SimulatedJob, answer: Answer) -> HandoffResult:
    return build_result_for_parent(
        job.state, job.texts, answer, ChildUsage(Usage(), 2), ChildUsage(Usage(), 12)
    )


@pytest.mark.parametrize("is_degraded", [False, True])
def test_only_a_planned_job_has_gaps_that_can_be_filled_alone(*, is_degraded: bool) -> None:
    job = SimulatedJob()
    job.advance()
    assert not has_gaps_alone(job.state), "it has no plan"
    job.make_plan(a="", b="", degraded="no plan" if is_degraded else None)
    job.advance()
    run_to_end(job, b="failed")

    assert has_gaps_alone(job.state) is not is_degraded


def test_a_complete_team_has_no_gaps_to_fill() -> None:
    job = SimulatedJob()
    job.advance()
    job.make_plan(a="")
    job.advance()

    assert not has_gaps_alone(run_to_end(job).state)


def test_a_continuing_team_fills_its_gaps_for_the_new_handoff() -> None:
    job = continue_team(ended_team(a="", b="", c="a b"))

    assert job.open_names == {"b"}
    assert job.state.submitted.parent == Parent(job_id=PARENT_ID, handoff_id=HandoffId("part.2"))
    assert not job.state.parent_told
    assert (job.state.submitted.limits.max_turns, job.state.deadline) == (30, job.now + 77)
    run_to_end(job)
    issued = [event.handoff_id for event in job.events(HandoffIssued)]
    assert issued[-3:] == ["b.2", "c.2", "assessor.2"]
    assert parent_result(job, Answer(status=JobStatus.OK, text="-")).handoff_id == "part.2"


@pytest.mark.parametrize("is_known", [False, True])
def test_an_unchanged_answer_is_not_a_new_result_for_a_parent_that_has_it(
    *, is_known: bool
) -> None:
    job = run_to_end(continue_team(ended_team(a="", b=""), is_known=is_known), b="failed")
    gap = Gap(step=StepId("b"), specialist="researcher", why="it broke")

    result = parent_result(job, Answer(status=JobStatus.PARTIAL, text="-", gaps=(gap,)))

    assert result.status is (ResultStatus.FAILED if is_known else ResultStatus.PARTIAL)
    assert result.error == f"its child job {JOB} lacks b (researcher): it broke"
    assert result.turns == 2


def test_the_report_of_an_earlier_end_does_not_count_for_the_next_end() -> None:
    job = continue_team(ended_team(a="", b=""))
    job.append(ParentTold())

    assert not job.state.parent_told


def test_a_users_retry_is_readable_by_the_previous_version() -> None:
    assert "continuation" not in RetryRequested(fills_gaps=True).to_json()


def test_a_team_states_the_cost_of_its_gaps_while_it_can_fill_them_alone() -> None:
    answer = Answer(
        status=JobStatus.PARTIAL,
        text="-",
        gaps=(Gap(step=StepId("b"), specialist="researcher", why="-"),),
        to_finish_microusd=70,
    )
    unplanned = ended_team(a="", b="", degraded="no plan")

    assert parent_result(ended_team(a="", b=""), answer).to_finish_microusd == 70
    assert parent_result(unplanned, answer).to_finish_microusd is None


def test_a_result_without_a_price_for_its_gaps_is_readable_by_the_previous_version() -> None:
    priced, unpriced = (
        a_result("a", "It is so.").model_copy(update={"to_finish_microusd": price})
        for price in (70, None)
    )

    assert [HandoffResult.from_json(result.to_json()) for result in (priced, unpriced)] == [
        priced,
        unpriced,
    ]
    assert [
        "to_finish_microusd" in build_handoff_finished_event(result, "w").to_json()
        for result in (priced, unpriced)
    ] == [True, False]
    assert "to_finish_microusd" not in unpriced.to_json()


def test_a_gap_after_a_failed_retry_does_not_count_as_sent_back() -> None:
    job = run_to_end(retry_job(run_to_end(job_with_team(), team="partial")), team="failed")

    (gap,) = find_gaps(job.state, job.texts)
    assert gap.why == "incomplete: it broke"


def test_the_cost_of_the_gaps_is_reported_and_the_total_cost_counts_for_the_limits() -> None:
    job = continue_team(ended_team(a="", b=""))
    job.finish("b", "failed", stop_reason=StopReason.JOB_BUDGET)
    job.advance()

    result = parent_result(job, Answer(status=JobStatus.PARTIAL, text="-"))

    assert (result.turns, result.stop_reason) == (2, "max_turns")
