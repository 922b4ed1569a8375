"""Contradictions in a job's life: looked for by code, judged once, never blended in silence."""

from __future__ import annotations

from handoff_queue.shared.types.events import ConflictsFound, JobStatus, Judged, RetryRequested
from handoff_queue.shared.types.handoff import StopReason
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.limits import JobLimits, OnLimit
from handoff_queue.supervisor.lifecycle.answer import assemble
from handoff_queue.supervisor.lifecycle.commands import FindConflicts, IssueRole
from handoff_queue.supervisor.lifecycle.disputes import disputes_of
from tests.doubles.contradictions import a_claim, settles
from tests.doubles.life import Life, a_plan, planned

METRES, FEET, OTHER = (
    a_claim("a.c1", "330", "m"),
    a_claim("b.c1", "984", "feet"),
    a_claim("b.c2", "1,083", "ft"),
)
BOTH = (a_claim("answer.c1", "330", "m"), a_claim("answer.c2", "984", "ft"))


def two_sides(limits: JobLimits | None = None) -> Life:
    """Two steps, whose claims contradict each other."""
    life = planned(limits=limits, a="", b="")
    life.finishes("a", output="It is 330 m high [a.c1].", claims=(METRES,))
    life.finishes("b", output="It is 984 feet high [b.c1].", claims=(FEET,))
    return life


def answer_of(life: Life) -> str:
    return assemble(life.state, JobStatus.OK, life.words, None).text


def test_what_is_disputed_is_said_with_value_and_unit_where_the_claim_leaves_them_out() -> None:
    life = planned(a="", b="")
    life.finishes(
        "a",
        output="It is high [a.c1].",
        claims=(METRES.model_copy(update={"text": "The tower's height is known."}),),
    )
    life.finishes("b", output="It is 984 feet high [b.c1].", claims=(FEET,))
    life.goes_on()
    settles(life)

    (line,) = [line for line in answer_of(life).splitlines() if "; against: " in line]
    assert (
        line
        == "- Eiffel Tower, height: The tower's height is known: 330 m [1]; against: Eiffel Tower: height: 984 feet [2]"
    )


def test_the_judge_is_asked_once_before_the_review() -> None:
    life = two_sides()

    assert life.goes_on() == [FindConflicts(), IssueRole("judge", 1)]
    settles(life, k1="a.c1")
    assert life.goes_on() == [IssueRole("assessor", 1)]


def test_nobody_is_asked_where_code_finds_no_conflict() -> None:
    life = planned(a="", b="")
    life.finishes("a", claims=(METRES,))
    life.finishes("b", claims=(OTHER,))

    assert life.goes_on() == [FindConflicts(), IssueRole("assessor", 1)]


def test_nothing_is_looked_for_where_no_two_claims_can_be_compared() -> None:
    life = planned(a="", b="")
    life.finishes("a", claims=(METRES,))
    life.finishes("b")

    assert life.goes_on() == [IssueRole("assessor", 1)]


def test_one_result_can_contradict_itself_in_mode_single_too() -> None:
    life = Life(mode=Mode.SINGLE)
    life.goes_on()
    life.finishes(
        "answer",
        output="330 m [answer.c1], or 984 ft [answer.c2].",
        claims=BOTH,
    )

    assert life.goes_on() == [FindConflicts(), IssueRole("judge", 1)]
    settles(life, k1="")
    life.goes_on()
    assert life.state.status is JobStatus.OK


def test_a_workflow_is_looked_at_too() -> None:
    life = Life(workflow=a_plan(a="", b=""), mode=Mode.PIPELINE)
    life.goes_on()
    life.finishes("a", claims=(METRES,))
    life.finishes("b", claims=(FEET,))

    assert IssueRole("judge", 1) in life.goes_on()


def test_the_same_conflicts_are_not_judged_again_after_another_round() -> None:
    life = two_sides()
    life.goes_on()
    settles(life, k1="")
    life.goes_on()
    life.judges(b="Too long.")
    life.goes_on()
    life.finishes("b", output="984 feet [b.c1].", claims=(FEET,))

    assert life.goes_on() == [FindConflicts(), IssueRole("assessor", 2)]
    assert [one.is_settled for one in disputes_of(life.state, life.words)] == [False]


def test_other_conflicts_of_another_round_are_judged() -> None:
    life = two_sides()
    life.goes_on()
    settles(life, k1="")
    life.goes_on()
    life.judges(b="Where is that from?")
    life.goes_on()
    life.finishes("b", claims=(a_claim("b.c1", "312", "m"),))

    assert life.goes_on() == [FindConflicts(), IssueRole("judge", 2)]


def test_a_round_that_mends_the_contradiction_leaves_none() -> None:
    life = two_sides()
    life.goes_on()
    settles(life, k1="a.c1")
    life.goes_on()
    life.judges(b="It is 330 m.")
    life.goes_on()
    life.finishes("b", claims=(OTHER,))

    assert life.goes_on() == [FindConflicts(), IssueRole("assessor", 2)]
    assert disputes_of(life.state, life.words) == ()


def test_all_stays_disputed_when_the_judge_fails_and_the_job_goes_on() -> None:
    life = two_sides()
    life.goes_on()
    life.happens(Judged(result=life.finishes("judge", "failed"), problem="the judge failed"))

    assert life.goes_on() == [IssueRole("assessor", 1)]
    assert [one.is_settled for one in disputes_of(life.state, life.words)] == [False]
    assert (
        "No contradiction was settled: the judge failed (it broke)."
        in assemble(life.state, JobStatus.OK, life.words, None).notes
    )


def test_nobody_is_asked_without_a_budget_and_all_stays_disputed() -> None:
    life = planned(limits=JobLimits(on_limit=OnLimit.WRAP_UP), a="", b="")
    life.finishes("a", claims=(METRES,))
    life.finishes("b", "partial", claims=(FEET,), stop_reason=StopReason.JOB_BUDGET)

    assert life.goes_on() == [FindConflicts(), IssueRole("assessor", 1)]
    assert [one.is_settled for one in disputes_of(life.state, life.words)] == [False]


def test_nobody_is_asked_when_time_is_short() -> None:
    life = two_sides()
    life.now = life.state.working_deadline

    assert IssueRole("judge", 1) not in life.goes_on()


def test_a_retry_asks_a_judge_that_failed_again() -> None:
    life = two_sides()
    life.goes_on()
    life.happens(Judged(result=life.finishes("judge", "failed"), problem="the judge failed"))
    life.goes_on()
    life.judges()
    life.goes_on()
    life.happens(RetryRequested())

    assert life.goes_on() == [IssueRole("judge", 2)]


def test_what_is_disputed_stands_in_the_answer_with_both_sources() -> None:
    life = two_sides()
    life.goes_on()
    settles(life, k1="")
    answer = assemble(life.state, JobStatus.OK, life.words, None)

    assert "**Disputed:**" in answer.text
    assert (
        "- Eiffel Tower, height: Eiffel Tower: height: 330 m [1]; against: Eiffel Tower: height: 984 feet [2]"
        in answer.text
    )
    assert [one.citation.source for one in answer.citations] == ["a.md", "b.md"]


def test_an_answer_that_uses_a_claim_that_fell_says_so() -> None:
    life = two_sides()
    life.goes_on()
    settles(life, k1="a.c1")

    assert "**Contradicted, and settled:**" in answer_of(life)
    assert "330 m [1]; not: Eiffel Tower: height: 984 feet [2]. Measured." in answer_of(life)


def test_an_answer_that_does_not_use_it_need_not() -> None:
    life = planned(a="", b="", c="a b")
    life.finishes("a", claims=(METRES,))
    life.finishes("b", claims=(FEET,))
    life.goes_on()
    life.finishes("c", output="It is 330 m high [a.c1].", claims=(METRES,))
    life.goes_on()
    settles(life, k1="a.c1")

    assert answer_of(life) == "It is 330 m high [1]."


def test_a_form_has_it_in_its_notes() -> None:
    life = Life(mode=Mode.SINGLE)
    life.goes_on()
    life.finishes("answer", output={"height": 330}, claims=BOTH)
    life.goes_on()
    settles(life, k1="")
    answer = assemble(life.state, JobStatus.OK, life.words, None)

    assert answer.value == {"height": 330}
    assert any(
        note.startswith("Disputed: Eiffel Tower, height:") and "(answer.md)" in note
        for note in answer.notes
    )


def test_those_who_come_after_are_told_what_not_to_use() -> None:
    life = two_sides()
    life.goes_on()
    settles(life, k1="a.c1")
    (settled,) = disputes_of(life.state, life.words)

    assert settled.brief() == {
        "about": "Eiffel Tower, height",
        "stands": ["a.c1"],
        "do_not_use": ["b.c1"],
        "why": "Measured.",
    }


def test_claims_that_do_not_contradict_each_other_after_all_are_used_as_they_are() -> None:
    life = two_sides()
    life.goes_on()
    settles(life, k1="a.c1 b.c1")

    assert "Contradicted" not in answer_of(life)
    assert "Disputed" not in answer_of(life)


def test_the_journal_holds_ids_of_claims_and_none_of_their_words() -> None:
    life = two_sides()
    life.goes_on()
    settles(life, k1="a.c1")
    told = "".join(
        recorded.event.to_json()
        for recorded in life.journal
        if isinstance(recorded.event, ConflictsFound | Judged)
    )

    assert '"a.c1","b.c1"' in told
    assert not any(word in told for word in ("Eiffel", "feet", "Measured"))
