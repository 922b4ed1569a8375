"""Jobs of a chaos run must end as planned. Only a handoff that was killed three times may
fail, and the handoffs that depend on it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from handoff_queue.chaos.expected_handoffs import OK, Ended, find_dependents
from handoff_queue.chaos.expected_outcomes import (
    CANCELLED_BY_USER,
    NOT_WAITED_FOR,
    SPENT,
    TOO_MANY_CLAIMS,
    StoredJob,
)
from handoff_queue.chaos.expected_outcomes import find_wrong_end as wrong_end_of
from handoff_queue.chaos.job_shapes import Shape
from handoff_queue.chaos.planned_jobs import PlannedJob, PlannedOutcome, PlannedStep
from handoff_queue.shared.types.handoff import StopReason
from handoff_queue.shared.types.job_options import Mode

KILLED = Ended("failed", TOO_MANY_CLAIMS)
CUT = Ended("partial", StopReason.JOB_BUDGET.value)
INTERNAL_ERROR = Ended("failed", "internal_error")


def job(shape: Shape, **steps: str) -> PlannedJob:
    return PlannedJob(
        "1-0",
        shape,
        tuple(PlannedStep(name, "writer", tuple(after.split())) for name, after in steps.items()),
        seed=1,
    )


PARALLEL = job(Shape.PARALLEL, a="", b="", c="")
DIAMOND = job(Shape.DIAMOND, a="", b="a", c="a", d="b c")
TIGHT = job(Shape.TIGHT, a="", b="", c="", d="", e="", f="")
CANCELLED = job(Shape.CANCELLED, a="", b="", c="")


def wrong_end(planned: PlannedJob, job_record: StoredJob, **children: StoredJob) -> str:
    """Return the broken expectation of a job, or ''. `children`: stories of its child jobs by
    step.
    """
    return wrong_end_of(
        planned,
        {
            planned.name: job_record,
            **{f"{planned.name}-{step}": child for step, child in children.items()},
        },
    )


def job_record(status: str, reason: str = "", /, **results: Ended) -> StoredJob:
    """Return the story of a job. `results`: the end of the first handoff of each step or role."""
    return StoredJob(
        status, (9.0,), results={f"{name}.1": end for name, end in results.items()}, reason=reason
    )


def oks(names: str) -> dict[str, Ended]:
    return dict.fromkeys(names.split(), OK)


def test_an_ordinary_job_ends_ok_with_every_handoff_of_its_plan() -> None:
    assert wrong_end(PARALLEL, job_record("ok", **oks("planner a b c assessor"))) == ""
    assert wrong_end(PARALLEL, job_record("ok", **oks("planner a b assessor"))) == "c.1: no result"
    assert (
        wrong_end(PARALLEL, job_record("partial", **oks("planner a b c assessor")))
        == "partial, though every handoff is as planned"
    )


def test_a_cancelled_job_ends_as_cancelled_by_its_user() -> None:
    assert wrong_end(CANCELLED, job_record("cancelled", CANCELLED_BY_USER, planner=OK)) == ""
    assert (
        wrong_end(CANCELLED, job_record("cancelled", "something else", planner=OK))
        == "not cancelled"
    )
    assert (
        wrong_end(CANCELLED, job_record("ok", **oks("planner a b c assessor"))) == "not cancelled"
    )


def test_a_job_that_needs_more_than_its_budget_ends_with_a_spent_budget() -> None:
    cut = dict.fromkeys("cdef", CUT)

    assert (
        wrong_end(TIGHT, job_record("partial", SPENT, **oks("planner a b assessor"), **cut)) == ""
    )
    assert (
        wrong_end(TIGHT, job_record("partial", "", **oks("planner a b assessor"), **cut))
        == "its budget should have ended it"
    )
    assert (
        wrong_end(TIGHT, job_record("ok", "", **oks("planner a b c d e f assessor")))
        == "its budget should have ended it"
    )
    assert (
        wrong_end(TIGHT, job_record("failed", SPENT, **oks("planner a b assessor"), **cut))
        == "failed, and something was usable"
    )
    assert (
        wrong_end(TIGHT, job_record("partial", SPENT, **oks("planner a"), b=INTERNAL_ERROR, **cut))
        == "b.1: failed, internal_error"
    )


def test_a_tight_job_fails_if_kills_cut_all_its_calls() -> None:
    all_cut = dict.fromkeys("abcdef", CUT)

    assert (
        wrong_end(
            TIGHT,
            job_record(
                "failed", f"{SPENT}, and no step has a usable result", planner=OK, **all_cut
            ),
        )
        == ""
    )
    assert (
        wrong_end(TIGHT, job_record("partial", SPENT, planner=OK, **all_cut))
        == "partial, and nothing was usable"
    )


def test_only_a_tight_job_may_end_because_its_budget_is_spent() -> None:
    assert (
        wrong_end(PARALLEL, job_record("partial", SPENT, **oks("planner a b c assessor")))
        == "its budget should not have ended it"
    )


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ({**oks("planner a c d assessor"), "b": KILLED}, ""),
        ({**oks("planner a c assessor"), "b": KILLED}, ""),
        (
            {**oks("planner a c assessor"), "b": KILLED, "d": INTERNAL_ERROR},
            "d.1: failed, internal_error",
        ),
        (
            {**oks("planner a d assessor"), "b": KILLED, "c": INTERNAL_ERROR},
            "c.1: failed, internal_error",
        ),
        ({**oks("planner a d assessor"), "b": KILLED}, "c.1: no result"),
    ],
    ids=[
        "the killed handoff fails",
        "its dependents are missing",
        "a dependent has a defect",
        "an independent step has a defect",
        "an independent step is missing",
    ],
)
def test_a_handoff_that_was_killed_three_times_excuses_itself_and_its_dependents(
    results: dict[str, Ended], expected: str
) -> None:
    assert wrong_end(DIAMOND, job_record("partial", **results)) == expected


def test_the_dependents_of_a_handoff_were_issued_after_it() -> None:
    assert find_dependents(DIAMOND, {"b.1"}) >= {"b.1", "d.1", "assessor.1"}
    assert not find_dependents(DIAMOND, {"b.1"}) & {"planner.1", "a.1", "c.1"}
    assert find_dependents(DIAMOND, {"planner.1"}) >= {
        "a.1",
        "b.1",
        "c.1",
        "d.1",
        "assessor.1",
        "answer.1",
    }
    assert find_dependents(DIAMOND, set()) == set()


def test_a_job_with_a_plan_made_by_code_is_partial() -> None:
    by_code = {"planner": KILLED, "answer": OK, "assessor": OK}

    assert wrong_end(PARALLEL, job_record("partial", **by_code)) == ""
    assert wrong_end(TIGHT, job_record("partial", **by_code)) == ""
    assert wrong_end(PARALLEL, job_record("ok", **by_code)) == "ok, though it was planned by code"


TEAM = job(Shape.PARALLEL, a="", b="")
TREE = PlannedJob(
    "1-0",
    Shape.TEAMS,
    (PlannedStep("x", "supervisor", team=replace(TEAM, name="1-0-x", parent="1-0")),),
    seed=1,
)
(CHILD,) = list(TREE.family)[1:]
JOINED = PlannedJob(
    "1-0",
    Shape.JOINED,
    (
        *(PlannedStep(name, "writer") for name in "abc"),
        PlannedStep("d", "writer", tuple("abc"), enough=2),
    ),
    1,
)
WHOLE, PART = (
    job_record("ok", **oks("planner a b assessor")),
    job_record("partial", **oks("planner b assessor"), a=KILLED),
)
PARTIAL_RESULT, FAILED_RESULT = Ended("partial", "finished"), Ended("failed", "finished")


def child_end(child: StoredJob, parent: StoredJob) -> str:
    return wrong_end_of(CHILD, {"1-0-x": child, "1-0": parent})


def test_a_step_of_a_team_ends_as_its_team_does() -> None:
    assert wrong_end(TREE, job_record("ok", **oks("planner x assessor")), x=WHOLE) == ""
    assert (
        wrong_end(TREE, job_record("ok", **oks("planner x assessor")), x=PART)
        == "x.1: ok, and its team is not"
    )
    assert (
        wrong_end(TREE, job_record("partial", **oks("planner assessor"), x=PARTIAL_RESULT), x=PART)
        == ""
    )
    assert (
        wrong_end(TREE, job_record("partial", **oks("planner assessor"), x=PARTIAL_RESULT), x=WHOLE)
        == "x.1: partial, finished"
    )
    assert wrong_end(TREE, job_record("ok", **oks("planner assessor")), x=WHOLE) == "x.1: no result"


def test_a_substitute_replaces_a_team_only_if_the_team_failed() -> None:
    failed = job_record("failed", planner=OK, a=KILLED, b=KILLED)
    failed_team = job_record("ok", **oks("planner assessor"), x=FAILED_RESULT)
    with_substitute = replace(failed_team, results={**failed_team.results, "x.2": OK})

    assert wrong_end(TREE, with_substitute, x=failed) == ""
    both_succeeded = replace(with_substitute, results={**with_substitute.results, "x.1": OK})
    assert wrong_end(TREE, both_succeeded, x=WHOLE) == "x.2: nothing of the sort was planned"


def test_a_child_may_be_cancelled_only_if_its_parent_no_longer_needs_it() -> None:
    cancelled = job_record("cancelled", f"j-1 {NOT_WAITED_FOR}", planner=OK)
    running, parent_cancelled = (
        StoredJob("running"),
        job_record("cancelled", CANCELLED_BY_USER, planner=OK),
    )

    assert child_end(cancelled, parent_cancelled) == ""
    assert child_end(cancelled, replace(running, given_up_at={"x.1": 5.0})) == ""
    assert child_end(cancelled, running) == "cancelled, though its result is needed"
    assert (
        child_end(replace(cancelled, reason=CANCELLED_BY_USER), parent_cancelled)
        == "cancelled, though its result is needed"
    )


def test_a_join_with_enough_results_uses_them_and_gives_up_the_others() -> None:
    early = job_record("partial", **oks("planner a b d assessor"))

    assert wrong_end(JOINED, replace(early, given_up_at={"c.1": 5.0})) == ""
    assert wrong_end(JOINED, early) == "c.1: no result, and not given up"
    assert (
        wrong_end(JOINED, job_record("partial", **oks("planner a d assessor")))
        == "d began with 1 results, and 2 are enough"
    )
    assert wrong_end(JOINED, job_record("ok", **oks("planner a b c d assessor"))) == ""
    assert (
        wrong_end(JOINED, replace(early, status="ok", given_up_at={"c.1": 5.0}))
        == "ok, though every handoff is as planned"
    )


def test_a_step_that_must_fail_or_ask_does_so_before_it_succeeds() -> None:
    steps = (
        PlannedStep("b", "writer", attempts=(PlannedOutcome.FAILED, PlannedOutcome.OK)),
        PlannedStep("c", "writer", ("b",)),
    )
    failing = PlannedJob("1-0", Shape.FAILING, steps, seed=1)
    first_attempt = job_record("ok", **oks("planner c assessor"), b=FAILED_RESULT)

    assert (
        wrong_end(failing, replace(first_attempt, results={**first_attempt.results, "b.2": OK}))
        == ""
    )
    assert wrong_end(failing, first_attempt) == "b.2: no result"
    assert (
        wrong_end(
            failing, replace(first_attempt, results={**first_attempt.results, "b.1": OK, "b.2": OK})
        )
        == "b.1: ok, finished"
    )


SENT_BACK = {
    Shape.VETOED: ("assessor.1", "fact_gate.1", "a.2", "b.2", "assessor.2", "fact_gate.2"),
    Shape.UPHELD: ("assessor.1", "a.2", "assessor.2", "judge.1", "a.3", "assessor.3"),
    Shape.OVERRULED: ("assessor.1", "a.2", "assessor.2", "judge.1"),
    Shape.REJECTED_PLAN: ("planner.2", "assessor.1"),
    Shape.REJECTED_RESEARCH: ("a.2", "b.2", "assessor.1"),
    Shape.REJECTED_ANSWER: ("assessor.1", "a.2", "b.2", "assessor.2"),
}


def ended(shape: Shape, status: str, /, *missing: str, **changes: Ended) -> str:
    """Return the broken expectation of a job of this shape, or ''.

    Args:
        missing: handoffs that have no result, such as `a.2`.
        changes: results that are not OK, such as `a_2=KILLED` for `a.2`.
    """
    present = [
        handoff_id
        for handoff_id in ("planner.1", "a.1", "b.1", *SENT_BACK[shape])
        if handoff_id not in missing
    ]
    results = dict.fromkeys(present, OK) | {
        handoff_id.replace("_", "."): end for handoff_id, end in changes.items()
    }
    return wrong_end(job(shape, a="", b=""), StoredJob(status, (9.0,), results=results))


@pytest.mark.parametrize("shape", SENT_BACK)
def test_a_revised_step_runs_again_and_no_step_runs_more_often(shape: Shape) -> None:
    *_, last = SENT_BACK[shape]

    assert ended(shape, "ok") == ""
    assert ended(shape, "ok", last) == f"{last}: no result"
    assert ended(shape, "partial") == "partial, though every handoff is as planned"
    for extra in ("a_4", "judge_2", "planner_3"):
        assert (
            ended(shape, "ok", **{extra: OK})
            == f"{extra.replace('_', '.')}: nothing of the sort was planned"
        )


@pytest.mark.parametrize(
    ("shape", "lost"),
    [
        (Shape.VETOED, ("a.2", "b.2", "assessor.2", "fact_gate.2")),
        (Shape.UPHELD, ("judge.1", "a.3", "assessor.3")),
        (Shape.OVERRULED, ("judge.1",)),
        (Shape.REJECTED_PLAN, ("planner.2",)),
        (Shape.REJECTED_RESEARCH, ("a.2", "b.2")),
        (Shape.REJECTED_ANSWER, ("a.2", "b.2", "assessor.2")),
    ],
)
def test_a_lost_veto_dispute_or_rejection_is_wrong(shape: Shape, lost: tuple[str, ...]) -> None:
    assert ended(shape, "ok", *lost) == f"{min(lost)}: no result"


def test_an_answer_is_incomplete_if_its_fact_check_was_killed_three_times() -> None:
    killed = {"fact_gate.1": KILLED} | oks("planner.1 a.1 b.1 assessor.1")
    checked = job(Shape.CHECKED, a="", b="")

    assert wrong_end(checked, StoredJob("partial", (9.0,), results=killed)) == ""
    assert (
        wrong_end(checked, StoredJob("ok", (9.0,), results=killed))
        == "ok, though no fact-checker has checked it"
    )


def test_a_veto_remains_if_both_steps_were_killed_and_nothing_was_repaired() -> None:
    third_attempts = dict.fromkeys(("a_3", "b_3", "assessor_3"), OK)

    assert ended(Shape.VETOED, "partial", a_2=KILLED, b_2=KILLED, **third_attempts) == ""
    assert (
        ended(Shape.VETOED, "partial", **third_attempts) == "a.3: nothing of the sort was planned"
    )


def test_an_input_step_runs_once() -> None:
    step_in_need = PlannedStep(
        "b", "writer", attempts=(PlannedOutcome.NEEDS_INPUT, PlannedOutcome.OK)
    )
    helped = PlannedJob(
        "1-0", Shape.HELPED, (step_in_need, PlannedStep("b_help", "writer", helps="b")), seed=1
    )
    results = {
        **oks("planner.1 planner.2 b_help.1 b.2 assessor.1"),
        "b.1": Ended("needs_input", "finished"),
    }

    def end_of(results: dict[str, Ended]) -> str:
        return wrong_end(helped, StoredJob("ok", (9.0,), results=results))

    assert end_of(results) == ""
    assert end_of(results | {"b_help.2": OK}) == "b_help.2: nothing of the sort was planned"
    assert (
        end_of({handoff_id: end for handoff_id, end in results.items() if handoff_id != "b_help.1"})
        == "b_help.1: no result"
    )


def test_only_the_last_plan_must_come_from_the_planner() -> None:
    assert ended(Shape.REJECTED_PLAN, "ok", planner_1=KILLED) == ""
    by_code = {"planner.1": OK, "planner.2": KILLED, "answer.1": OK, "assessor.1": OK}
    assert (
        wrong_end(
            job(Shape.REJECTED_PLAN, a="", b=""), StoredJob("partial", (9.0,), results=by_code)
        )
        == ""
    )
    assert (
        wrong_end(job(Shape.REJECTED_PLAN, a="", b=""), StoredJob("ok", (9.0,), results=by_code))
        == "ok, though it was planned by code"
    )


def test_a_handoff_outside_every_plan_is_wrong_even_if_it_succeeded() -> None:
    assert (
        wrong_end(PARALLEL, job_record("ok", **oks("planner a b c assessor replanner")))
        == "replanner.1: nothing of the sort was planned"
    )
    assert (
        wrong_end(
            replace(PARALLEL, mode=Mode.ADAPTIVE),
            job_record("ok", **oks("planner a b c assessor replanner")),
        )
        == ""
    )
