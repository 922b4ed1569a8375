"""The judge settles a lasting disagreement of a writer and an assessor once. The answer reports
the ruling.
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
from handoff_queue.supervisor.lifecycle.commands import IssueRole
from handoff_queue.supervisor.lifecycle.job_budget import list_closing_roles
from handoff_queue.supervisor.lifecycle.state import Phase
from handoff_queue.supervisor.roles.judge import RulingFormat, build_judge_task
from tests.doubles.conflicting_claims import a_claim
from tests.doubles.disputed_reviews import rule_on_disputes, send_back
from tests.doubles.simulated_job import SimulatedJob, finish_steps, planned

POINT = "Name the year of the survey."


def insist_and_advance(job: SimulatedJob, *repeats: str, **problems: str) -> None:
    send_back(job, *repeats, **problems)
    job.advance()


def rule_and_advance(job: SimulatedJob, **sides: Side) -> None:
    rule_on_disputes(job, **sides)
    job.advance()


def disputed_job(rounds: int = 2) -> SimulatedJob:
    """Return a job whose step was sent back for a point, did not fix it, and was sent back
    again.
    """
    job = planned(limits=JobLimits(max_rounds=rounds), a="")
    job.finish("a", output="It is that high [a.c1].", claims=(a_claim("a.c1", "330", "m"),))
    job.advance()
    insist_and_advance(job, a=POINT)
    job.finish(
        "a", output="It is that high, as I said [a.c1].", claims=(a_claim("a.c1", "330", "m"),)
    )
    job.advance()
    insist_and_advance(job, "a", a=POINT)
    return job


def points_and_rulings(job: SimulatedJob) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the open points of the answer, and its notes about rulings."""
    assert job.state.ended
    answer = assemble(job.state, job.state.ended.status, job.texts, None)
    return answer.open_points, tuple(
        note for note in answer.notes if "Settled" in note or "not settled" in note
    )


def judge_handoffs(job: SimulatedJob) -> int:
    return sum(event.assigned_to == "judge" for event in job.events(HandoffIssued))


def test_the_judge_is_asked_when_the_same_point_would_end_the_rounds() -> None:
    assert disputed_job().open_names == {"judge"}


def test_the_judge_sees_only_the_point_the_result_and_its_evidence() -> None:
    job = disputed_job()
    brief, _ = build_judge_task(job.state, job.texts)

    assert all(text in brief for text in (POINT, "as I said", "Eiffel Tower: height: 330 m"))
    assert "Compare things." not in brief
    assert "Do a." not in brief


def test_a_point_for_the_writer_is_dropped_and_reported_as_settled() -> None:
    job = disputed_job()
    rule_and_advance(job, a=Side.WRITER)

    assert job.state.status is JobStatus.OK
    assert points_and_rulings(job) == (
        (),
        (f"Settled for the writer: a: {POINT} (the judge: It stands there.)",),
    )


def test_a_point_for_the_assessor_uses_a_remaining_round_with_feedback_for_the_writer() -> None:
    job = disputed_job()
    rule_and_advance(job, a=Side.ASSESSOR)

    *_, feedback = job.handoffs["a.3"].feedback
    assert (
        feedback.text
        == f"{POINT}\n\nA judge has seen your result and its evidence, and agrees: It stands there."
    )
    finish_steps(job, "a")
    job.review()
    job.advance()
    assert job.state.status is JobStatus.OK
    assert points_and_rulings(job) == ((), ())


def test_without_a_remaining_round_the_assessors_point_stays_open() -> None:
    job = disputed_job(rounds=1)
    rule_and_advance(job, a=Side.ASSESSOR)

    assert job.state.status is JobStatus.PARTIAL
    assert points_and_rulings(job) == (
        (f"a: {POINT} (the judge says so, too: It stands there.)",),
        (),
    )


def test_an_unsettled_point_is_reported_as_disputed() -> None:
    job = disputed_job()
    rule_and_advance(job, a=Side.NEITHER)

    assert job.state.status is JobStatus.PARTIAL
    (point,), _ = points_and_rulings(job)
    assert point.startswith(f"Disputed between assessor and writer: a: {POINT}")


def test_the_judge_is_asked_once_even_if_the_dispute_continues() -> None:
    job = disputed_job(rounds=5)
    rule_and_advance(job, a=Side.ASSESSOR)
    finish_steps(job, "a")
    insist_and_advance(job, "a", a=POINT)

    assert job.state.ended
    assert judge_handoffs(job) == 1


def test_a_point_settled_for_the_writer_is_not_sent_back_again() -> None:
    job = planned(limits=JobLimits(max_rounds=5), a="", b="")
    finish_steps(job, "a", "b")
    insist_and_advance(job, a=POINT, b=POINT)
    finish_steps(job, "a", "b")
    insist_and_advance(job, "a", "b", a=POINT, b=POINT)
    rule_and_advance(job, a=Side.WRITER, b=Side.ASSESSOR)
    assert job.open_names == {"b"}
    finish_steps(job, "b")
    insist_and_advance(job, "a", a=POINT, b="Something else.")

    assert job.open_names == {"b"}
    finish_steps(job, "b")
    insist_and_advance(job, "a", a=POINT)
    assert job.state.status is JobStatus.OK


def test_a_failed_judge_settles_nothing_and_the_answer_says_so() -> None:
    job = disputed_job()
    job.append(Arbitrated(result=job.finish("judge", "failed"), problem="the judge failed"))
    job.advance()

    assert points_and_rulings(job) == (
        (f"a: {POINT}",),
        ("What assessor and writer do not agree on was not settled: the judge failed.",),
    )


def test_without_money_or_time_the_judge_is_not_asked() -> None:
    late = disputed_job()
    assert late.next_commands() == ()
    late = planned(a="")
    finish_steps(late, "a")
    insist_and_advance(late, a=POINT)
    finish_steps(late, "a")
    late.now = late.state.working_deadline
    insist_and_advance(late, "a", a=POINT)
    assert judge_handoffs(late) == 0

    spent = disputed_job()
    spent.finish("judge", "failed", stop_reason=StopReason.JOB_BUDGET)
    spent.advance()
    assert spent.state.ended
    assert judge_handoffs(spent) == 1


def test_a_judge_call_is_reserved_from_the_first_revision_until_the_judge_is_asked() -> None:
    job = planned(a="", b="a")
    finish_steps(job, "a")
    finish_steps(job, "b")
    assert "judge" not in list_closing_roles(job.state)
    insist_and_advance(job, b=POINT)
    assert "judge" in list_closing_roles(job.state)
    finish_steps(job, "b")
    insist_and_advance(job, "b", b=POINT)
    rule_and_advance(job, b=Side.WRITER)
    assert "judge" not in list_closing_roles(job.state)


def test_a_retry_may_ask_the_judge_again() -> None:
    job = disputed_job()
    rule_and_advance(job, a=Side.NEITHER)
    job.append(RetryRequested(from_step=StepId("a")))

    assert job.state.arbitrated is None
    assert job.state.phase is Phase.WORKING


def test_a_review_with_a_new_request_continues_without_the_judge() -> None:
    job = planned(limits=JobLimits(max_rounds=5), a="")
    finish_steps(job, "a")
    insist_and_advance(job, a=POINT)
    finish_steps(job, "a")
    insist_and_advance(job, a="Something else.")

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
    assert [ruling.step for ruling in Rulings.from_value(read.output).rulings] == ["a", "b"]


def test_on_the_last_try_a_point_without_a_ruling_stays_undecided() -> None:
    read = RulingFormat(("a", "b")).read(
        '{"rulings": [{"point": "a", "why": "So.", "right": "Writer"}]}', last_try=True
    )

    assert [ruling.right for ruling in Rulings.from_value(read.output).rulings] == [
        Side.WRITER,
        Side.NEITHER,
    ]
