"""Code finds contradictions, the judge settles each one once, and the answer reports all."""

from __future__ import annotations

from handoff_queue.shared.types.events import ConflictsFound, JobStatus, Judged, RetryRequested
from handoff_queue.shared.types.handoff import StopReason
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.limits import JobLimits, OnLimit
from handoff_queue.shared.types.names import Role
from handoff_queue.supervisor.lifecycle.answer import assemble
from handoff_queue.supervisor.lifecycle.commands import FindConflicts, IssueRole
from handoff_queue.supervisor.lifecycle.conflict_resolution import find_disputes
from tests.doubles.conflicting_claims import a_claim, settle_conflicts
from tests.doubles.simulated_job import SimulatedJob, a_plan, planned

METRES, FEET, OTHER = (
    a_claim("a.c1", "330", "m"),
    a_claim("b.c1", "984", "feet"),
    a_claim("b.c2", "1,083", "ft"),
)
BOTH = (a_claim("answer.c1", "330", "m"), a_claim("answer.c2", "984", "ft"))


def contradicting_job(limits: JobLimits | None = None) -> SimulatedJob:
    """Return a job with two steps whose claims contradict each other."""
    job = planned(limits=limits, a="", b="")
    job.finish("a", output="It is 330 m high [a.c1].", claims=(METRES,))
    job.finish("b", output="It is 984 feet high [b.c1].", claims=(FEET,))
    return job


def answer_of(job: SimulatedJob) -> str:
    return assemble(job.state, JobStatus.OK, job.texts, None).text


def test_a_dispute_gives_value_and_unit_if_the_claims_text_lacks_them() -> None:
    job = planned(a="", b="")
    job.finish(
        "a",
        output="It is high [a.c1].",
        claims=(METRES.model_copy(update={"text": "The tower's height is known."}),),
    )
    job.finish("b", output="It is 984 feet high [b.c1].", claims=(FEET,))
    job.advance()
    settle_conflicts(job)

    (line,) = [line for line in answer_of(job).splitlines() if "; against: " in line]
    assert (
        line
        == "- Eiffel Tower, height: The tower's height is known: 330 m [1]; against: Eiffel Tower:"
        " height: 984 feet [2]"
    )


def test_the_judge_is_asked_once_before_the_review() -> None:
    job = contradicting_job()

    assert job.advance() == [FindConflicts(), IssueRole(Role.JUDGE, 1)]
    settle_conflicts(job, k1="a.c1")
    assert job.advance() == [IssueRole(Role.ASSESSOR, 1)]


def test_without_a_conflict_the_judge_is_not_asked() -> None:
    job = planned(a="", b="")
    job.finish("a", claims=(METRES,))
    job.finish("b", claims=(OTHER,))

    assert job.advance() == [FindConflicts(), IssueRole(Role.ASSESSOR, 1)]


def test_without_comparable_claims_no_conflicts_are_searched() -> None:
    job = planned(a="", b="")
    job.finish("a", claims=(METRES,))
    job.finish("b")

    assert job.advance() == [IssueRole(Role.ASSESSOR, 1)]


def test_a_single_result_can_contradict_itself_in_mode_single() -> None:
    job = SimulatedJob(mode=Mode.SINGLE)
    job.advance()
    job.finish(
        "answer",
        output="330 m [answer.c1], or 984 ft [answer.c2].",
        claims=BOTH,
    )

    assert job.advance() == [FindConflicts(), IssueRole(Role.JUDGE, 1)]
    settle_conflicts(job, k1="")
    job.advance()
    assert job.state.status is JobStatus.OK


def test_the_results_of_a_workflow_are_checked_for_conflicts() -> None:
    job = SimulatedJob(workflow=a_plan(a="", b=""), mode=Mode.PIPELINE)
    job.advance()
    job.finish("a", claims=(METRES,))
    job.finish("b", claims=(FEET,))

    assert IssueRole(Role.JUDGE, 1) in job.advance()


def test_the_same_conflicts_are_not_judged_again_after_another_round() -> None:
    job = contradicting_job()
    job.advance()
    settle_conflicts(job, k1="")
    job.advance()
    job.review(b="Too long.")
    job.advance()
    job.finish("b", output="984 feet [b.c1].", claims=(FEET,))

    assert job.advance() == [FindConflicts(), IssueRole(Role.ASSESSOR, 2)]
    assert [dispute.is_settled for dispute in find_disputes(job.state, job.texts)] == [False]


def test_other_conflicts_of_another_round_are_judged() -> None:
    job = contradicting_job()
    job.advance()
    settle_conflicts(job, k1="")
    job.advance()
    job.review(b="Where is that from?")
    job.advance()
    job.finish("b", claims=(a_claim("b.c1", "312", "m"),))

    assert job.advance() == [FindConflicts(), IssueRole(Role.JUDGE, 2)]


def test_a_round_that_repairs_the_contradiction_leaves_no_conflict() -> None:
    job = contradicting_job()
    job.advance()
    settle_conflicts(job, k1="a.c1")
    job.advance()
    job.review(b="It is 330 m.")
    job.advance()
    job.finish("b", claims=(OTHER,))

    assert job.advance() == [FindConflicts(), IssueRole(Role.ASSESSOR, 2)]
    assert find_disputes(job.state, job.texts) == ()


def test_all_points_stay_disputed_if_the_judge_fails_and_the_job_continues() -> None:
    job = contradicting_job()
    job.advance()
    job.append(Judged(result=job.finish("judge", "failed"), problem="the judge failed"))

    assert job.advance() == [IssueRole(Role.ASSESSOR, 1)]
    assert [dispute.is_settled for dispute in find_disputes(job.state, job.texts)] == [False]
    assert (
        "No contradiction was settled: the judge failed (it broke)."
        in assemble(job.state, JobStatus.OK, job.texts, None).notes
    )


def test_without_a_budget_the_judge_is_not_asked_and_all_points_stay_disputed() -> None:
    job = planned(limits=JobLimits(on_limit=OnLimit.WRAP_UP), a="", b="")
    job.finish("a", claims=(METRES,))
    job.finish("b", "partial", claims=(FEET,), stop_reason=StopReason.JOB_BUDGET)

    assert job.advance() == [FindConflicts(), IssueRole(Role.ASSESSOR, 1)]
    assert [dispute.is_settled for dispute in find_disputes(job.state, job.texts)] == [False]


def test_the_judge_is_not_asked_when_time_is_short() -> None:
    job = contradicting_job()
    job.now = job.state.working_deadline

    assert IssueRole(Role.JUDGE, 1) not in job.advance()


def test_a_retry_asks_a_failed_judge_again() -> None:
    job = contradicting_job()
    job.advance()
    job.append(Judged(result=job.finish("judge", "failed"), problem="the judge failed"))
    job.advance()
    job.review()
    job.advance()
    job.append(RetryRequested())

    assert job.advance() == [IssueRole(Role.JUDGE, 2)]


def test_a_disputed_point_is_in_the_answer_with_both_sources() -> None:
    job = contradicting_job()
    job.advance()
    settle_conflicts(job, k1="")
    answer = assemble(job.state, JobStatus.OK, job.texts, None)

    assert "**Disputed:**" in answer.text
    assert (
        "- Eiffel Tower, height: Eiffel Tower: height: 330 m [1]; against: Eiffel Tower: height:"
        " 984 feet [2]" in answer.text
    )
    assert [entry.citation.source for entry in answer.citations] == ["a.md", "b.md"]


def test_an_answer_that_uses_a_rejected_claim_names_it() -> None:
    job = contradicting_job()
    job.advance()
    settle_conflicts(job, k1="a.c1")

    assert "**Contradicted, and settled:**" in answer_of(job)
    assert "330 m [1]; not: Eiffel Tower: height: 984 feet [2]. Measured." in answer_of(job)


def test_an_answer_without_the_rejected_claim_does_not_name_it() -> None:
    job = planned(a="", b="", c="a b")
    job.finish("a", claims=(METRES,))
    job.finish("b", claims=(FEET,))
    job.advance()
    job.finish("c", output="It is 330 m high [a.c1].", claims=(METRES,))
    job.advance()
    settle_conflicts(job, k1="a.c1")

    assert answer_of(job) == "It is 330 m high [1]."


def test_an_answer_with_a_schema_names_a_rejected_claim_in_its_notes() -> None:
    job = SimulatedJob(mode=Mode.SINGLE)
    job.advance()
    job.finish("answer", output={"height": 330}, claims=BOTH)
    job.advance()
    settle_conflicts(job, k1="")
    answer = assemble(job.state, JobStatus.OK, job.texts, None)

    assert answer.value == {"height": 330}
    assert any(
        note.startswith("Disputed: Eiffel Tower, height:") and "(answer.md)" in note
        for note in answer.notes
    )


def test_later_roles_know_the_claims_that_they_must_not_use() -> None:
    job = contradicting_job()
    job.advance()
    settle_conflicts(job, k1="a.c1")
    (settled,) = find_disputes(job.state, job.texts)

    assert settled.build_brief() == {
        "about": "Eiffel Tower, height",
        "stands": ["a.c1"],
        "do_not_use": ["b.c1"],
        "why": "Measured.",
    }


def test_claims_that_the_judge_finds_consistent_are_used_unchanged() -> None:
    job = contradicting_job()
    job.advance()
    settle_conflicts(job, k1="a.c1 b.c1")

    assert "Contradicted" not in answer_of(job)
    assert "Disputed" not in answer_of(job)


def test_the_journal_holds_ids_of_claims_and_no_words() -> None:
    job = contradicting_job()
    job.advance()
    settle_conflicts(job, k1="a.c1")
    events_json = "".join(
        recorded.event.to_json()
        for recorded in job.journal
        if isinstance(recorded.event, ConflictsFound | Judged)
    )

    assert '"a.c1","b.c1"' in events_json
    assert not any(word in events_json for word in ("Eiffel", "feet", "Measured"))
