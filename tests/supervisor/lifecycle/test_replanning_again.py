"""An adaptive job that continues after its end: the changes that its replanner can make while
earlier results stand.
"""

from __future__ import annotations

from handoff_queue.shared.types.events import HandoffIssued, JobStatus
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.limits import NewLimits
from handoff_queue.shared.types.plan import Patch, Repeat, Step
from handoff_queue.supervisor.lifecycle.answer import assemble
from handoff_queue.supervisor.lifecycle.retry_rules import retry_of
from tests.doubles.life import Life, done

FINALIZE = Patch(finalize=True)


def adaptive() -> Life:
    """c is made of a and b, d is built on c; a and b are out."""
    life = Life(mode=Mode.ADAPTIVE)
    life.goes_on()
    life.plans(a="", b="", c="a b", d="c")
    life.goes_on()
    return life


def with_a_gap() -> Life:
    """It has ended: b failed, and c was made without it."""
    life = adaptive()
    ends(life, "b")
    assert life.state.status is JobStatus.PARTIAL
    return life


def ends(life: Life, *failing: str) -> list[str]:
    """The steps and roles that are handed over on the way, but for the replanner, which leaves
    the plan as it is.
    """
    before = len(life.events(HandoffIssued))
    while not life.state.ended:
        for one in sorted(life.out):
            if one == "replanner":
                life.replans()
            elif one == "assessor":
                life.judges()
            else:
                life.finishes(one, "failed" if one in failing else "ok")
        life.goes_on()
    issued = life.events(HandoffIssued)[before:]
    return [event.handoff_id for event in issued if event.assigned_to != "replanner"]


def roles(life: Life) -> list[str]:
    return [event.assigned_to for event in life.events(HandoffIssued)]


def said(life: Life) -> str:
    return assemble(life.state, life.state.status, life.words, None).to_json()


def goes_on_again(life: Life, *, whole: bool = False) -> Life:
    life.happens(retry_of(life.state, {}, None, NewLimits(), whole=whole))
    life.goes_on()
    assert (life.out, life.state.held.steps) == ({"b"}, ("c", "d"))
    return life


def test_who_finalizes_keeps_what_was_begun_before_also_where_it_is_made_anew() -> None:
    life = goes_on_again(with_a_gap())
    done(life, "b")
    assert life.out == {"c", "replanner"}
    life.replans(FINALIZE)
    life.goes_on()

    assert ends(life) == ["d.2", "assessor.2"]
    assert (life.state.status, {*life.state.steps}) == (JobStatus.OK, {*"abcd"})


def test_who_finalizes_over_a_gap_that_stays_has_the_results_that_stand_reviewed() -> None:
    life = goes_on_again(with_a_gap())
    life.finishes("b", "failed")
    life.goes_on()
    assert life.out == {"replanner"}
    life.replans(FINALIZE)
    life.goes_on()

    assert life.out == {"assessor"}
    assert [life.step(name).attempt for name in "cd"] == [1, 1]


def test_what_is_added_behind_a_result_that_stands_waits_until_that_is_sure() -> None:
    life = goes_on_again(with_a_gap())
    done(life, "b")
    life.replans(
        Patch(
            add=(
                Step(
                    id=StepId("e"),
                    specialist="researcher",
                    task="Check d.",
                    depends_on=(StepId("d"),),
                ),
            )
        )
    )
    life.goes_on()

    assert life.out == {"c"}
    assert ends(life)[:2] == ["d.2", "e.1"]


def test_a_finish_asks_no_replanner_and_an_answer_that_stands_still_tells_why_none_was_asked_any_more() -> (
    None
):
    life = adaptive()
    life.finishes("a")
    life.finishes("b", "failed")
    life.goes_on()
    life.replans(Patch(repeats=(Repeat(step=StepId("e"), earlier=StepId("a")),)))
    ends(life, "b")
    before = said(life)
    looks = roles(life).count("replanner")
    goes_on_again(life, whole=True)

    assert ends(life, "b") == []
    assert roles(life).count("replanner") == looks
    assert "asked for the same work again" in before
    assert said(life) == before
