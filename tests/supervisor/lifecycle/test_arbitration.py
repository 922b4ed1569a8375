"""A writer and a reviewer disagree: the judge is asked once with the point, the result and its
evidence, and the answer reports the ruling.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.agent.answer_format import InvalidAnswer
from handoff_queue.shared.types.events import Arbitrated, HandoffIssued, JobStatus, RetryRequested
from handoff_queue.shared.types.handoff import StopReason
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.limits import JobLimits
from handoff_queue.shared.types.review import Rulings, Side
from handoff_queue.supervisor.lifecycle.answer import assemble
from handoff_queue.supervisor.lifecycle.budget import closers
from handoff_queue.supervisor.lifecycle.commands import IssueRole
from handoff_queue.supervisor.lifecycle.state import Phase
from handoff_queue.supervisor.roles.disputed_review import RulingFormat, judge_task
from tests.doubles.conflicting_claims import a_claim
from tests.doubles.disputed_reviews import insist, rule
from tests.doubles.simulated_job import SimulatedJob, finish_steps, planned

POINT = "Name the year of the survey."


def reviews(job: SimulatedJob, *repeats: str, **problems: str) -> None:
    insist(job, *repeats, **problems)
    job.advance()


def ruled(job: SimulatedJob, **sides: Side) -> None:
    rule(job, **sides)
    job.advance()


def a_quarrel(rounds: int = 2) -> SimulatedJob:
    """The step was sent back for a point, did not do it, and the review insists."""
    job = planned(limits=JobLimits(max_rounds=rounds), a="")
    job.finish("a", output="It is that high [a.c1].", claims=(a_claim("a.c1", "330", "m"),))
    job.advance()
    reviews(job, a=POINT)
    job.finish(
        "a", output="It is that high, as I said [a.c1].", claims=(a_claim("a.c1", "330", "m"),)
    )
    job.advance()
    reviews(job, "a", a=POINT)
    return job


def told(job: SimulatedJob) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Open points and notes of the answer."""
    assert job.state.ended
    answer = assemble(job.state, job.state.ended.status, job.texts, None)
    return answer.open_points, tuple(
        note for note in answer.notes if "Settled" in note or "not settled" in note
    )


def judges(job: SimulatedJob) -> int:
    return sum(event.assigned_to == "judge" for event in job.events(HandoffIssued))


def test_the_judge_is_asked_when_the_same_point_would_end_the_rounds() -> None:
    assert a_quarrel().open_names == {"judge"}


def test_he_sees_the_point_the_result_and_its_evidence_and_nothing_else() -> None:
    job = a_quarrel()
    brief, about, _ = judge_task(job.state, job.texts)

    assert about == ()
    assert all(said in brief for said in (POINT, "as I said", "Eiffel Tower: height: 330 m"))
    assert "Compare things." not in brief
    assert "Do a." not in brief


def test_a_point_for_the_writer_is_dropped_and_reported_as_settled() -> None:
    job = a_quarrel()
    ruled(job, a=Side.WRITER)

    assert job.state.status is JobStatus.OK
    assert told(job) == (
        (),
        (f"Settled for the writer: a: {POINT} (the judge: It stands there.)",),
    )


def test_a_point_for_the_reviewer_uses_a_remaining_round_with_feedback_for_the_writer() -> None:
    job = a_quarrel()
    ruled(job, a=Side.REVIEWER)

    (*_, feedback) = job.handoffs["a.3"].feedback
    assert (
        feedback.text
        == f"{POINT}\n\nA judge has seen your result and its evidence, and agrees: It stands there."
    )
    finish_steps(job, "a")
    job.review()
    job.advance()
    assert job.state.status is JobStatus.OK
    assert told(job) == ((), ())


def test_without_a_remaining_round_the_reviewers_point_stays_open() -> None:
    job = a_quarrel(rounds=1)
    ruled(job, a=Side.REVIEWER)

    assert job.state.status is JobStatus.PARTIAL
    assert told(job) == ((f"a: {POINT} (the judge says so, too: It stands there.)",), ())


def test_an_unsettled_point_is_reported_as_disputed() -> None:
    job = a_quarrel()
    ruled(job, a=Side.NEITHER)

    assert job.state.status is JobStatus.PARTIAL
    ((point,), _) = told(job)
    assert point.startswith(f"Disputed between reviewer and writer: a: {POINT}")


def test_the_judge_is_asked_once_even_if_the_dispute_continues() -> None:
    job = a_quarrel(rounds=5)
    ruled(job, a=Side.REVIEWER)
    finish_steps(job, "a")
    reviews(job, "a", a=POINT)

    assert job.state.ended
    assert judges(job) == 1


def test_a_point_settled_for_the_writer_is_not_sent_back_again() -> None:
    job = planned(limits=JobLimits(max_rounds=5), a="", b="")
    finish_steps(job, "a", "b")
    reviews(job, a=POINT, b=POINT)
    finish_steps(job, "a", "b")
    reviews(job, "a", "b", a=POINT, b=POINT)
    ruled(job, a=Side.WRITER, b=Side.REVIEWER)
    assert job.open_names == {"b"}
    finish_steps(job, "b")
    reviews(job, "a", a=POINT, b="Something else.")

    assert job.open_names == {"b"}
    finish_steps(job, "b")
    reviews(job, "a", a=POINT)
    assert job.state.status is JobStatus.OK


def test_a_failed_judge_settles_nothing_and_the_answer_says_so() -> None:
    job = a_quarrel()
    job.append(Arbitrated(result=job.finish("judge", "failed"), problem="the judge failed"))
    job.advance()

    assert told(job) == (
        (f"a: {POINT}",),
        ("What reviewer and writer do not agree on was not settled: the judge failed.",),
    )


def test_without_money_or_time_the_judge_is_not_asked() -> None:
    late = a_quarrel()
    assert late.next_commands() == ()
    late = planned(a="")
    finish_steps(late, "a")
    reviews(late, a=POINT)
    finish_steps(late, "a")
    late.now = late.state.working_deadline
    reviews(late, "a", a=POINT)
    assert judges(late) == 0

    spent = a_quarrel()
    spent.finish("judge", "failed", stop_reason=StopReason.JOB_BUDGET)
    spent.advance()
    assert spent.state.ended
    assert judges(spent) == 1


def test_a_call_is_kept_for_him_from_when_something_was_sent_back_until_he_was_asked() -> None:
    job = planned(a="", b="a")
    finish_steps(job, "a")
    finish_steps(job, "b")
    assert "judge" not in closers(job.state)
    reviews(job, b=POINT)
    assert "judge" in closers(job.state)
    finish_steps(job, "b")
    reviews(job, "b", b=POINT)
    ruled(job, b=Side.WRITER)
    assert "judge" not in closers(job.state)


def test_a_retry_may_ask_him_again() -> None:
    job = a_quarrel()
    ruled(job, a=Side.NEITHER)
    job.append(RetryRequested(from_step=StepId("a")))

    assert job.state.arbitrated is None
    assert job.state.phase is Phase.WORKING


def test_a_review_with_a_new_request_continues_without_the_judge() -> None:
    job = planned(limits=JobLimits(max_rounds=5), a="")
    finish_steps(job, "a")
    reviews(job, a=POINT)
    finish_steps(job, "a")
    reviews(job, a="Something else.")

    assert job.open_names == {"a"}
    assert not any(
        isinstance(command, IssueRole) and command.role == "judge"
        for command in job.next_commands()
    )


@given(st.text(max_size=300), st.booleans())
def test_every_last_answer_of_the_judge_is_a_ruling_for_each_point_or_a_failure(
    text: str, last_try: bool
) -> None:
    try:
        read = RulingFormat(("a", "b")).read(text, last_try=last_try)
    except InvalidAnswer:
        return
    assert [one.step for one in Rulings.of(read.output).rulings] == ["a", "b"]


def test_a_point_that_he_leaves_out_is_undecided_on_the_last_try() -> None:
    read = RulingFormat(("a", "b")).read(
        '{"rulings": [{"point": "a", "why": "So.", "right": "Writer"}]}', last_try=True
    )

    assert [one.right for one in Rulings.of(read.output).rulings] == [Side.WRITER, Side.NEITHER]
