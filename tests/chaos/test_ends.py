"""How jobs must end: as planned, and otherwise only where a handoff was killed three times, in that one and in what hangs on it."""

from __future__ import annotations

import pytest

from chaos.ends import CANCELLED_BY_USER, JOB_BUDGET, OK, SPENT, TOO_MANY_CLAIMS, Ended, Story, hanging_on, wrong_end
from chaos.plan import PlannedJob, PlannedStep, Shape

KILLED = Ended("failed", TOO_MANY_CLAIMS)
CUT = Ended("partial", JOB_BUDGET)
DEFECT = Ended("failed", "defect")


def job(shape: Shape, **steps: str) -> PlannedJob:
    return PlannedJob("1-0", shape, tuple(PlannedStep(name, "writer", tuple(after.split())) for name, after in steps.items()), seed=1)


PARALLEL = job(Shape.PARALLEL, a="", b="", c="")
DIAMOND = job(Shape.DIAMOND, a="", b="a", c="a", d="b c")
TIGHT = job(Shape.TIGHT, a="", b="", c="", d="", e="", f="")
CANCELLED = job(Shape.CANCELLED, a="", b="", c="")


def story(status: str, reason: str = "", /, **results: Ended) -> Story:
    """NAME=END for `NAME.1`."""
    return Story(status, (9.0,), results={f"{name}.1": end for name, end in results.items()}, reason=reason)


def oks(names: str) -> dict[str, Ended]:
    return dict.fromkeys(names.split(), OK)


def test_an_ordinary_job_ends_ok_with_every_handoff_of_its_plan() -> None:
    assert wrong_end(PARALLEL, story("ok", **oks("planner a b c assessor"))) == ""
    assert wrong_end(PARALLEL, story("ok", **oks("planner a b assessor"))) == "c.1: no result"
    assert wrong_end(PARALLEL, story("partial", **oks("planner a b c assessor"))) == "partial, though every handoff is ok"


def test_a_cancelled_job_ends_as_cancelled_by_its_user() -> None:
    assert wrong_end(CANCELLED, story("cancelled", CANCELLED_BY_USER, planner=OK)) == ""
    assert wrong_end(CANCELLED, story("cancelled", "something else", planner=OK)) == "not cancelled"
    assert wrong_end(CANCELLED, story("ok", **oks("planner a b c assessor"))) == "not cancelled"


def test_a_job_that_wants_more_than_it_may_ends_because_its_budget_is_spent() -> None:
    cut = dict.fromkeys("cdef", CUT)

    assert wrong_end(TIGHT, story("partial", SPENT, **oks("planner a b assessor"), **cut)) == ""
    assert wrong_end(TIGHT, story("partial", "", **oks("planner a b assessor"), **cut)) == "its budget should have ended it"
    assert wrong_end(TIGHT, story("ok", "", **oks("planner a b c d e f assessor"))) == "its budget should have ended it"
    assert wrong_end(TIGHT, story("failed", SPENT, **oks("planner a b assessor"), **cut)) == "failed, and something was usable"
    assert wrong_end(TIGHT, story("partial", SPENT, **oks("planner a"), b=DEFECT, **cut)) == "b.1: defect"


def test_a_tight_job_whose_calls_were_all_cut_by_kills_fails() -> None:
    none = dict.fromkeys("abcdef", CUT)

    assert wrong_end(TIGHT, story("failed", f"{SPENT}, and no step has a usable result", planner=OK, **none)) == ""
    assert wrong_end(TIGHT, story("partial", SPENT, planner=OK, **none)) == "partial, and nothing was usable"


def test_only_a_tight_job_may_end_because_its_budget_is_spent() -> None:
    assert wrong_end(PARALLEL, story("partial", SPENT, **oks("planner a b c assessor"))) == "its budget should not have ended it"


@pytest.mark.parametrize(
    ("results", "wrong"),
    [
        ({**oks("planner a c d assessor"), "b": KILLED}, ""),
        ({**oks("planner a c assessor"), "b": KILLED}, ""),
        ({**oks("planner a c assessor"), "b": KILLED, "d": DEFECT}, "d.1: defect"),
        ({**oks("planner a d assessor"), "b": KILLED, "c": DEFECT}, "c.1: defect"),
        ({**oks("planner a d assessor"), "b": KILLED}, "c.1: no result"),
    ],
    ids=["only it", "what hangs on it too", "but a defect is none of it", "its neighbour is not excused", "nor may that be missing"],
)
def test_a_handoff_that_was_killed_three_times_excuses_itself_and_what_hangs_on_it(results: dict[str, Ended], wrong: str) -> None:
    assert wrong_end(DIAMOND, story("partial", **results)) == wrong


def test_what_hangs_on_a_handoff_is_what_was_issued_after_it() -> None:
    assert hanging_on(DIAMOND, {"b.1"}) >= {"b.1", "d.1", "assessor.1"}
    assert not hanging_on(DIAMOND, {"b.1"}) & {"planner.1", "a.1", "c.1"}
    assert hanging_on(DIAMOND, {"planner.1"}) >= {"a.1", "b.1", "c.1", "d.1", "assessor.1", "answer.1"}
    assert hanging_on(DIAMOND, set()) == set()


def test_a_job_without_a_plan_of_its_planners_is_partial_and_never_ok() -> None:
    by_code = {"planner": KILLED, "answer": OK, "assessor": OK}

    assert wrong_end(PARALLEL, story("partial", **by_code)) == ""
    assert wrong_end(TIGHT, story("partial", **by_code)) == ""
    assert wrong_end(PARALLEL, story("ok", **by_code)) == "ok, though it was planned by code"
