"""A specialist checks an answer's facts before it leaves. A veto sends the answer back. The answer
names the unchecked claims.
"""

from __future__ import annotations

import pytest

from handoff_queue.shared.types.events import (
    CancelRequested,
    FactsChecked,
    HandoffIssued,
    JobStatus,
    RetryRequested,
)
from handoff_queue.shared.types.gates import Gates
from handoff_queue.shared.types.handoff import ResultStatus, StopReason
from handoff_queue.shared.types.job_options import NOBODY_THERE, ApprovalOf, Approvals, Mode
from handoff_queue.shared.types.limits import JobLimits, OnLimit
from handoff_queue.shared.types.names import FACT_GATE
from handoff_queue.supervisor.lifecycle.answer import assemble
from handoff_queue.supervisor.lifecycle.budget import closers
from handoff_queue.supervisor.lifecycle.commands import (
    CheckGates,
    EndJob,
    IssueFactCheck,
    SkipFactCheck,
    TakeFactCheck,
)
from handoff_queue.supervisor.lifecycle.fact_gate import NO_WORKER
from handoff_queue.supervisor.lifecycle.gates import MOST_GATE_ROUNDS
from handoff_queue.supervisor.lifecycle.handoffs import fact_check_handoff
from handoff_queue.supervisor.lifecycle.observations import Observations
from handoff_queue.supervisor.roles.fact_check import fact_check_schema, fact_check_task
from tests.doubles.fact_checks import checks_facts
from tests.doubles.handoffs import a_spec
from tests.doubles.life import RESEARCHERS, Life, a_plan

AWAY = Observations(RESEARCHERS, is_fact_checker_away=True)


def a_job(
    limits: JobLimits | None = None,
    min_words: int | None = None,
    approvals: Approvals = NOBODY_THERE,
) -> Life:
    """One step, whose result is the answer; the writer checks it."""
    life = Life(
        limits,
        mode=Mode.SINGLE,
        gates=Gates(fact_checker="writer", min_words=min_words),
        approvals=approvals,
    )
    life.goes_on()
    return life


def answered(limits: JobLimits | None = None, min_words: int | None = None) -> Life:
    """The answer is there, and is about to leave."""
    life = a_job(limits, min_words)
    life.finishes("answer", output="All in all, so.")
    life.goes_on()
    return life


def mended(life: Life) -> None:
    life.finishes("answer", output="All in all, not so.")
    life.goes_on()


def checked(life: Life, status: str = "ok", verdict: str | None = None, **wrong: str) -> None:
    checks_facts(life, status, verdict, **wrong)
    life.goes_on()


def notes_of(life: Life) -> str:
    return " ".join(assemble(life.state, life.state.status, life.words, None).notes)


def test_it_is_handed_the_answer_when_code_has_looked_at_it_and_before_it_leaves() -> None:
    life = a_job()
    life.finishes("answer", output="All in all, so.")

    assert [type(command) for command in life.goes_on()][-2:] == [CheckGates, IssueFactCheck]
    (issued,) = (one for one in life.events(HandoffIssued) if one.is_fact_check)
    assert (issued.handoff_id, issued.assigned_to, issued.group, life.out) == (
        "fact_gate.1",
        "writer",
        "g2",
        {FACT_GATE},
    )


def test_an_answer_that_it_passes_leaves_whole() -> None:
    life = answered()
    checks_facts(life)

    assert [type(command) for command in life.goes_on()] == [TakeFactCheck, EndJob]
    assert life.state.status is JobStatus.OK


def test_an_answer_that_code_turns_down_does_not_reach_it() -> None:
    life = answered(min_words=9)

    assert life.out == {"answer"}
    assert life.state.role_attempts == {}


def test_what_it_holds_to_be_wrong_goes_back_to_who_wrote_it_with_each_statement_and_why() -> None:
    life = answered()
    checked(life, so="It is not so.")
    (feedback,) = life.handoffs["answer.2"].feedback

    assert feedback.author == "gate"
    assert '"so" is wrong: It is not so.' in feedback.text
    assert "fact-checker" in feedback.text
    mended(life)
    assert life.out == {FACT_GATE}, "what was mended is checked, too"
    checked(life)
    assert life.state.status is JobStatus.OK


def test_after_as_many_vetoes_as_any_gate_has_the_answer_leaves_with_what_is_wrong_below_it() -> (
    None
):
    life = answered()
    for _ in range(MOST_GATE_ROUNDS):
        checked(life, so="It is not so.")
        mended(life)
    checked(life, so="It is not so.")

    assert life.state.status is JobStatus.PARTIAL
    assert life.state.role_attempts[FACT_GATE] == MOST_GATE_ROUNDS + 1
    assert assemble(life.state, JobStatus.PARTIAL, life.words, None).open_points == (
        'The fact-checker: "so" is wrong: It is not so.',
    )


def test_vetoes_of_code_and_of_the_fact_checker_are_counted_together() -> None:
    life = answered(min_words=4)
    checked(life, so="It is not so.")
    life.finishes("answer", output="No.")
    life.goes_on()
    mended(life)
    checked(life, so="It is not so.")

    assert life.state.status is JobStatus.PARTIAL
    assert life.state.gate_rounds == MOST_GATE_ROUNDS


@pytest.mark.parametrize(
    ("status", "verdict", "why"),
    [
        ("failed", "PASS", "the fact-checker failed"),
        ("partial", "PASS", "failed"),
        ("ok", "CANNOT_SAY", "could not say (Held against"),
    ],
)
def test_an_answer_that_it_did_not_check_leaves_as_partial_and_says_so(
    status: str, verdict: str, why: str
) -> None:
    life = answered()
    checked(life, status, verdict)

    assert life.state.status is JobStatus.PARTIAL
    assert "The facts of the answer were not checked: " in notes_of(life)
    assert why in notes_of(life)


def test_a_veto_that_a_limit_cut_short_is_one_all_the_same() -> None:
    life = answered()
    checked(life, "partial", so="It is not so.")

    assert life.out == {"answer"}


def test_nobody_waits_for_a_fact_checker_that_no_worker_serves() -> None:
    life = a_job()
    life.finishes("answer", output="All in all, so.")

    assert SkipFactCheck(NO_WORKER.format("writer")) in life.goes_on(AWAY)
    assert life.state.status is JobStatus.PARTIAL
    assert "no worker of `writer` was there" in notes_of(life)


def test_one_that_is_still_out_when_the_time_is_over_is_given_up() -> None:
    life = answered()
    life.now = life.state.deadline
    life.goes_on()

    assert life.state.status is JobStatus.PARTIAL
    assert life.state.open == {}
    assert "s are over" in notes_of(life)


def test_without_time_nobody_is_asked() -> None:
    life = a_job()
    life.finishes("answer", output="All in all, so.")
    life.now = life.state.working_deadline
    life.goes_on()

    assert life.state.role_attempts == {}
    assert "no time was left" in notes_of(life)


def test_a_cancel_does_not_wait_for_it() -> None:
    life = answered()
    life.happens(CancelRequested())
    life.goes_on()

    assert life.state.status is JobStatus.CANCELLED
    assert life.state.open == {}


def test_a_person_is_asked_about_the_answer_after_it() -> None:
    life = a_job(approvals=Approvals(what=(ApprovalOf.ANSWER,)))
    life.finishes("answer", output="All in all, so.")
    life.goes_on()
    assert life.state.question is None
    checked(life)

    assert life.state.question is not None
    assert life.state.question.what is ApprovalOf.ANSWER


def test_an_answer_that_a_person_sent_back_is_checked_anew() -> None:
    life = a_job(approvals=Approvals(what=(ApprovalOf.ANSWER,)))
    life.finishes("answer", output="All in all, so.")
    life.goes_on()
    checked(life)
    life.rejects("No.")
    life.goes_on()
    mended(life)

    assert life.out == {FACT_GATE}


def test_the_same_answer_is_not_checked_twice() -> None:
    """The repair attempt fails, so the earlier findings stand."""
    life = answered()
    checked(life, so="It is not so.")
    while life.out == {"answer"} and life.step("answer").attempt < 9:
        life.finishes("answer", "failed")
        life.goes_on()

    assert life.state.status is JobStatus.PARTIAL
    assert life.state.role_attempts[FACT_GATE] == 1
    assert len([one for one in life.events(FactsChecked) if one.wrong]) == MOST_GATE_ROUNDS + 1


def test_when_it_hits_a_budget_and_its_user_gives_more_it_is_asked_again() -> None:
    life = answered(JobLimits(on_limit=OnLimit.ASK))
    life.finishes(FACT_GATE, "failed", stop_reason=StopReason.JOB_BUDGET)
    life.goes_on()
    assert life.state.asked_at is not None
    life.happens(RetryRequested(max_turns=100))
    life.goes_on()

    assert life.out == {FACT_GATE}
    checked(life)
    assert life.state.status is JobStatus.OK


@pytest.mark.parametrize("on_limit", [OnLimit.STOP, OnLimit.WRAP_UP])
def test_when_it_hits_a_budget_otherwise_the_answer_leaves_unchecked(on_limit: OnLimit) -> None:
    life = answered(JobLimits(on_limit=on_limit))
    life.finishes(FACT_GATE, "failed", stop_reason=StopReason.JOB_BUDGET)
    life.goes_on()

    assert life.state.status is JobStatus.PARTIAL
    assert "The facts of the answer were not checked" in notes_of(life)


def test_a_retry_asks_one_anew_that_could_not_say() -> None:
    life = answered()
    checked(life, "failed")
    life.happens(RetryRequested())
    life.goes_on()

    assert life.out == {FACT_GATE}
    checked(life)
    assert life.state.status is JobStatus.OK


def test_what_is_kept_to_end_a_job_is_kept_for_it_too() -> None:
    life = a_job()

    assert closers(life.state) == ("writer",)


def test_it_sees_the_answer_with_its_claims_and_the_documents_and_nothing_of_how_it_came_about() -> (
    None
):
    life = Life(gates=Gates(fact_checker="writer"))
    life.goes_on()
    life.plans(a_plan(a="", b="a"))
    life.goes_on()
    for step in "ab":
        life.finishes(step)
        life.goes_on()
    life.judges()
    life.goes_on()
    spec, task = a_spec(), fact_check_task("Compare.")
    handoff = fact_check_handoff(
        life.state, spec, spec.content_digest, 1, task=task, schema=fact_check_schema()
    )

    assert [(one.step_id, one.result) for one in handoff.context] == [("b", life.step("b").result)]
    assert (handoff.feedback, handoff.artifacts) == ((), ())
    assert handoff.task_description == task
    assert task.endswith('"Compare."')
    assert handoff.limits.max_turns == spec.max_turns


def test_a_step_that_failed_leaves_nothing_to_check() -> None:
    life = Life(workflow=a_plan(a=""), mode=Mode.PIPELINE, gates=Gates(fact_checker="writer"))
    life.goes_on()
    life.finishes("a", ResultStatus.FAILED.value)
    life.goes_on()

    assert life.state.status is JobStatus.FAILED
    assert life.events(FactsChecked) == []
