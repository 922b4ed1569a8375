"""A writer and a reviewer who can't agree: the judge is asked once, sees the point, the result
and its evidence, and his word is told.
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
from handoff_queue.supervisor.roles.disputed_review import RulingFormat, judging
from tests.doubles.contradictions import a_claim
from tests.doubles.life import Life, done, planned
from tests.doubles.quarrels import insists, rules

POINT = "Name the year of the survey."


def reviews(life: Life, *repeats: str, **problems: str) -> None:
    insists(life, *repeats, **problems)
    life.goes_on()


def ruled(life: Life, **sides: Side) -> None:
    rules(life, **sides)
    life.goes_on()


def a_quarrel(rounds: int = 2) -> Life:
    """The step was sent back for a point, did not do it, and the review insists."""
    life = planned(limits=JobLimits(max_rounds=rounds), a="")
    life.finishes("a", output="It is that high [a.c1].", claims=(a_claim("a.c1", "330", "m"),))
    life.goes_on()
    reviews(life, a=POINT)
    life.finishes(
        "a", output="It is that high, as I said [a.c1].", claims=(a_claim("a.c1", "330", "m"),)
    )
    life.goes_on()
    reviews(life, "a", a=POINT)
    return life


def told(life: Life) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Open points and notes of the answer."""
    assert life.state.ended
    answer = assemble(life.state, life.state.ended.status, life.words, None)
    return answer.open_points, tuple(
        note for note in answer.notes if "Settled" in note or "not settled" in note
    )


def judges(life: Life) -> int:
    return sum(event.assigned_to == "judge" for event in life.events(HandoffIssued))


def test_the_judge_is_asked_when_the_same_point_would_end_the_rounds() -> None:
    assert a_quarrel().out == {"judge"}


def test_he_sees_the_point_the_result_and_its_evidence_and_nothing_else() -> None:
    life = a_quarrel()
    brief, about, _ = judging(life.state, life.words)

    assert about == ()
    assert all(said in brief for said in (POINT, "as I said", "Eiffel Tower: height: 330 m"))
    assert "Compare things." not in brief
    assert "Do a." not in brief


def test_where_the_writer_is_right_the_point_is_dropped_and_told_as_settled() -> None:
    life = a_quarrel()
    ruled(life, a=Side.WRITER)

    assert life.state.status is JobStatus.OK
    assert told(life) == (
        (),
        (f"Settled for the writer: a: {POINT} (the judge: It stands there.)",),
    )


def test_where_the_reviewer_is_right_a_round_that_is_left_is_used_and_the_writer_is_told() -> None:
    life = a_quarrel()
    ruled(life, a=Side.REVIEWER)

    (*_, feedback) = life.handoffs["a.3"].feedback
    assert (
        feedback.text
        == f"{POINT}\n\nA judge has seen your result and its evidence, and agrees: It stands there."
    )
    done(life, "a")
    life.judges()
    life.goes_on()
    assert life.state.status is JobStatus.OK
    assert told(life) == ((), ())


def test_without_a_round_left_what_the_reviewer_is_right_about_stays_open() -> None:
    life = a_quarrel(rounds=1)
    ruled(life, a=Side.REVIEWER)

    assert life.state.status is JobStatus.PARTIAL
    assert told(life) == ((f"a: {POINT} (the judge says so, too: It stands there.)",), ())


def test_what_he_cannot_settle_is_told_as_disputed() -> None:
    life = a_quarrel()
    ruled(life, a=Side.NEITHER)

    assert life.state.status is JobStatus.PARTIAL
    ((point,), _) = told(life)
    assert point.startswith(f"Disputed between reviewer and writer: a: {POINT}")


def test_he_is_asked_once_though_the_quarrel_goes_on() -> None:
    life = a_quarrel(rounds=5)
    ruled(life, a=Side.REVIEWER)
    done(life, "a")
    reviews(life, "a", a=POINT)

    assert life.state.ended
    assert judges(life) == 1


def test_what_was_settled_for_the_writer_is_not_sent_back_again() -> None:
    life = planned(limits=JobLimits(max_rounds=5), a="", b="")
    done(life, "a", "b")
    reviews(life, a=POINT, b=POINT)
    done(life, "a", "b")
    reviews(life, "a", "b", a=POINT, b=POINT)
    ruled(life, a=Side.WRITER, b=Side.REVIEWER)
    assert life.out == {"b"}
    done(life, "b")
    reviews(life, "a", a=POINT, b="Something else.")

    assert life.out == {"b"}
    done(life, "b")
    reviews(life, "a", a=POINT)
    assert life.state.status is JobStatus.OK


def test_a_judge_who_fails_settles_nothing_and_the_answer_says_so() -> None:
    life = a_quarrel()
    life.happens(Arbitrated(result=life.finishes("judge", "failed"), problem="the judge failed"))
    life.goes_on()

    assert told(life) == (
        (f"a: {POINT}",),
        ("What reviewer and writer do not agree on was not settled: the judge failed.",),
    )


def test_without_money_or_time_nobody_is_asked() -> None:
    late = a_quarrel()
    assert late.decides() == ()
    late = planned(a="")
    done(late, "a")
    reviews(late, a=POINT)
    done(late, "a")
    late.now = late.state.working_deadline
    reviews(late, "a", a=POINT)
    assert judges(late) == 0

    spent = a_quarrel()
    spent.finishes("judge", "failed", stop_reason=StopReason.JOB_BUDGET)
    spent.goes_on()
    assert spent.state.ended
    assert judges(spent) == 1


def test_a_call_is_kept_for_him_from_when_something_was_sent_back_until_he_was_asked() -> None:
    life = planned(a="", b="a")
    done(life, "a")
    done(life, "b")
    assert "judge" not in closers(life.state)
    reviews(life, b=POINT)
    assert "judge" in closers(life.state)
    done(life, "b")
    reviews(life, "b", b=POINT)
    ruled(life, b=Side.WRITER)
    assert "judge" not in closers(life.state)


def test_a_retry_may_ask_him_again() -> None:
    life = a_quarrel()
    ruled(life, a=Side.NEITHER)
    life.happens(RetryRequested(from_step=StepId("a")))

    assert life.state.arbitrated is None
    assert life.state.phase is Phase.WORKING


def test_a_review_that_asks_for_something_new_goes_on_without_him() -> None:
    life = planned(limits=JobLimits(max_rounds=5), a="")
    done(life, "a")
    reviews(life, a=POINT)
    done(life, "a")
    reviews(life, a="Something else.")

    assert life.out == {"a"}
    assert not any(
        isinstance(command, IssueRole) and command.role == "judge" for command in life.decides()
    )


@given(st.text(max_size=300), st.booleans())
def test_whatever_he_answers_on_his_last_try_there_is_a_ruling_for_every_point_or_he_failed(
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
