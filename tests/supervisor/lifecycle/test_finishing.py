"""`handoff finish` fills gaps. A step that depends on a gap runs again only if the gap's new result
differs.
"""

from __future__ import annotations

from random import Random

from hypothesis import assume, given
from hypothesis import strategies as st

from handoff_queue.shared.types.events import (
    Arbitrated,
    FactsChecked,
    GatesChecked,
    HandoffFinished,
    HandoffIssued,
    JobStatus,
    Rejected,
    RetryRequested,
    Reviewed,
)
from handoff_queue.shared.types.handoff import ResultStatus
from handoff_queue.shared.types.job_options import ApprovalOf, Approvals
from handoff_queue.shared.types.limits import NewLimits
from handoff_queue.shared.types.names import CLOSING_ROLES
from handoff_queue.supervisor.lifecycle.answer import assemble
from handoff_queue.supervisor.lifecycle.disputes import JUDGE
from handoff_queue.supervisor.lifecycle.retry_rules import retry_of
from tests.doubles.life import Life
from tests.doubles.world import World
from tests.draws import draws

FAILS_FOR_EVER = "it is not there"


def with_a_gap(
    *, gaps: tuple[str, ...] = ("b",), approvals: Approvals | None = None, **depends_on: str
) -> Life:
    """A job that has ended without these."""
    life = Life(approvals=approvals or Approvals())
    life.goes_on()
    life.plans(**depends_on)
    life.goes_on()
    ends(life, *gaps)
    assert life.state.status is JobStatus.PARTIAL
    return life


def ends(life: Life, *failing: str) -> None:
    """Run the job to its end: all handoffs succeed except `failing`, the review passes, questions
    are approved.
    """
    while not life.state.ended:
        if life.state.question:
            life.approves()
        for one in sorted(life.out):
            if one == "assessor":
                life.judges()
            else:
                life.finishes(
                    one,
                    *(("failed",) if one in failing else ()),
                    **({"error": FAILS_FOR_EVER} if one in failing else {}),
                )
        life.goes_on()


def finishes(life: Life, *failing: str, whole: bool = True) -> list[str]:
    """Finish the job again, and return the handoffs that were issued, in order."""
    before = len(life.events(HandoffIssued))
    life.happens(retry_of(life.state, {}, None, NewLimits(), whole=whole))
    life.goes_on()
    ends(life, *failing)
    return [event.handoff_id for event in life.events(HandoffIssued)[before:]]


def said(life: Life) -> str:
    assert life.state.ended
    return assemble(life.state, life.state.ended.status, life.words, None).to_json()


def test_a_gap_that_stays_a_gap_is_all_that_is_paid_for_and_the_answer_stands() -> None:
    life = with_a_gap(a="", b="", c="a b", d="c")
    before = said(life)

    for attempt in (2, 3):
        assert finishes(life, "b") == [f"b.{attempt}"]
        assert said(life) == before


def test_a_gap_that_is_filled_is_built_on_again_and_reviewed() -> None:
    life = with_a_gap(a="", b="", c="a b", d="c", e="a")

    assert finishes(life) == ["b.2", "c.2", "d.2", "assessor.2"]
    assert life.state.status is JobStatus.OK


def test_what_builds_on_a_step_that_fails_when_it_is_done_again_keeps_its_result() -> None:
    life = with_a_gap(a="", b="", c="a b", d="c")
    d = life.step("d").result

    issued = finishes(life, "c")

    assert issued == ["b.2", "c.2", "assessor.2"]
    assert life.step("d").result == d


def test_a_gap_behind_a_held_result_waits_until_that_is_sure() -> None:
    life = with_a_gap(gaps=("b", "d"), a="", b="", c="a b", d="c")

    assert finishes(life) == ["b.2", "c.2", "d.2", "assessor.2"]


def test_a_gap_behind_a_held_result_is_tried_when_that_is_sure_to_stand() -> None:
    life = with_a_gap(gaps=("b", "d"), a="", b="", c="a b", d="c")

    assert finishes(life, "b") == ["b.2", "d.2", "assessor.2"]


def test_a_retry_of_all_that_did_not_succeed_has_the_answer_reviewed_in_any_case() -> None:
    life = with_a_gap(a="", b="", c="a b")

    assert finishes(life, "b", whole=False) == ["b.2", "assessor.2"]


def test_an_answer_that_stands_is_not_asked_about_again() -> None:
    life = with_a_gap(approvals=Approvals(what=(ApprovalOf.ANSWER,)), a="", b="", c="a b")
    asked = life.state.approved

    finishes(life, "b")

    assert asked == life.state.approved == (ApprovalOf.ANSWER,)
    assert life.state.question is None


def test_a_retry_that_names_a_step_does_all_that_builds_on_it_again() -> None:
    life = with_a_gap(a="", b="", c="a b", d="c")
    before = len(life.events(HandoffIssued))
    life.happens(retry_of(life.state, {}, "b", NewLimits()))
    life.goes_on()
    ends(life, "b")

    assert [event.handoff_id for event in life.events(HandoffIssued)[before:]] == [
        "b.2",
        "c.2",
        "d.2",
        "assessor.2",
    ]


def test_a_retry_of_a_version_before_does_it_all_again() -> None:
    life = with_a_gap(a="", b="", c="a b")
    life.happens(RetryRequested(whole=True))
    life.goes_on()
    ends(life, "b")

    assert [event.handoff_id for event in life.events(HandoffIssued)][-3:] == [
        "b.2",
        "c.2",
        "assessor.2",
    ]


@draws(150)
@given(st.integers(0, 10**9))
def test_whatever_a_finish_pays_for_has_a_reason(seed: int) -> None:
    world = World(Random(seed))
    world.run()
    state = world.state
    gaps = {name for name, step in state.steps.items() if not step.is_whole}
    assume(gaps and state.synthesised is not None)
    at = len(world.journal)
    world.happens(RetryRequested(whole=True, holds=True))
    world.runs += 1
    world.run()
    world.check_end()

    fresh = set[str]()
    for event in (one.event for one in world.journal[at:]):
        match event:
            case (
                Reviewed(steps=(_, *_))
                | GatesChecked(is_sent_back=True)
                | FactsChecked(is_sent_back=True)
                | Rejected()
                | Arbitrated()
            ):
                return  # a step that was sent back has that reason
            case HandoffFinished() if event.status in (ResultStatus.OK, ResultStatus.PARTIAL):
                fresh.add(event.handoff_id.rpartition(".")[0])
            case HandoffIssued(step_id=step) if step in state.steps:
                assert step in gaps or fresh & {*state.steps[step].outline.depends_on}
            case HandoffIssued(assigned_to=role) if role in (*CLOSING_ROLES, JUDGE):
                assert fresh & state.steps.keys()
            case _:
                pass
