"""Where several can do a step, the less busy one gets it; where one has failed at it, another
of the same capability does.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from handoff_queue.shared.types.events import JobStatus, RetryRequested
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.plan import OnFailure, Plan
from handoff_queue.supervisor.lifecycle.commands import IssueGroup
from handoff_queue.supervisor.lifecycle.handoffs import reassigned_steps
from handoff_queue.supervisor.lifecycle.observations import Observations, SpecialistLoad
from handoff_queue.supervisor.lifecycle.step_failure import MOST_RETRIES
from tests.doubles.life import Life, a_plan

ROLES = frozenset({"researcher", "searcher", "generalist"})


def seen(**queued: int) -> Observations:
    """`seen(researcher=5, searcher=0)`: both look things up, with one slot each."""
    return Observations(
        ROLES,
        loads={
            name: SpecialistLoad("look-up", waiting, slots=1) for name, waiting in queued.items()
        },
    )


def planned(policy: OnFailure = OnFailure.RETRY) -> Life:
    """Three steps side by side, all for the researcher; d builds on them."""
    life = Life()
    life.goes_on()
    plan = a_plan(a="", b="", c="", d="a b c")
    life.plans(
        Plan(steps=tuple(step.model_copy(update={"on_failure": policy}) for step in plan.steps))
    )
    return life


def who_gets(life: Life, looked: Observations) -> dict[str, str]:
    (issue,) = [command for command in life.decides(looked) if isinstance(command, IssueGroup)]
    return {step: dict(issue.instead).get(step, "researcher") for step in issue.steps}


def test_the_less_busy_queue_comes_first() -> None:
    assert who_gets(planned(), seen(researcher=5, searcher=0)) == {
        "a": "searcher",
        "b": "searcher",
        "c": "searcher",
    }


def test_what_one_decision_hands_out_counts_too() -> None:
    assert sorted(who_gets(planned(), seen(researcher=0, searcher=0)).values()) == [
        "researcher",
        "researcher",
        "searcher",
    ]


def test_who_declares_no_capability_gets_what_the_plan_says() -> None:
    assert set(who_gets(planned(), Observations(ROLES)).values()) == {"researcher"}


def test_more_slots_take_more() -> None:
    loads = {
        "researcher": SpecialistLoad("look-up", 4, slots=8),
        "searcher": SpecialistLoad("look-up", 1, slots=1),
    }

    assert set(who_gets(planned(), Observations(ROLES, loads=loads)).values()) == {"researcher"}


@given(st.integers(0, 9), st.integers(0, 9), st.integers(1, 30))
def test_queues_are_evened_out(one: int, other: int, steps: int) -> None:
    life = Life()
    life.goes_on()
    life.plans(a_plan(**{f"s{n}": "" for n in range(steps)}))
    ids = [StepId(f"s{n}") for n in range(steps)]

    to_other = len(reassigned_steps(life.state, ids, seen(researcher=one, searcher=other)))

    ends = sorted((one + steps - to_other, other + to_other))
    assert ends[1] - ends[0] <= max(1, abs(one - other) - steps)


def fails(life: Life, looked: Observations) -> None:
    life.finishes("a", "failed", error="no")
    life.goes_on(looked)


def tried_by_all(policy: OnFailure) -> Life:
    """Return a job in which every specialist has failed at the step a."""
    looked = seen(researcher=0, searcher=0)
    life = planned(policy)
    life.goes_on(Observations(ROLES))
    for _ in range(MOST_RETRIES + 3):
        fails(life, looked)
    return life


def test_after_its_own_specialist_another_of_the_same_capability_tries_it_and_then_the_generalist() -> (
    None
):
    looked = seen(researcher=0, searcher=0)
    life = planned()
    life.goes_on(Observations(ROLES))
    who = []
    for _ in range(MOST_RETRIES + 3):
        who.append(life.step("a").specialist)
        fails(life, looked)

    assert who == ["researcher"] * (1 + MOST_RETRIES) + ["searcher", "generalist"]
    assert life.step("a").attempt == MOST_RETRIES + 3, "and nobody after that"


def test_when_nobody_else_can_try_a_person_is_asked_if_the_plan_says_so() -> None:
    life = tried_by_all(OnFailure.ASK)

    assert life.state.question
    assert life.state.question.what == "failure"
    assert life.out == {"b", "c"}, "what runs goes on meanwhile"


def test_a_person_lets_it_go() -> None:
    life = tried_by_all(OnFailure.ASK)
    life.approves()
    for step in ("b", "c"):
        life.finishes(step)
        life.goes_on(seen(researcher=0, searcher=0))

    assert life.out == {"d"}
    assert life.step("a").attempt == MOST_RETRIES + 3


def test_a_person_has_it_tried_again_with_a_word_about_it() -> None:
    life = tried_by_all(OnFailure.ASK)
    note = life.rejects("Look in the cellar.")
    life.goes_on(seen(researcher=0, searcher=0))

    assert life.step("a").specialist == "researcher"
    assert life.handoffs[f"a.{MOST_RETRIES + 4}"].feedback[-1].text == life.payloads[note.digest]


def test_a_step_that_may_be_dropped_is_not_asked_about() -> None:
    life = planned(OnFailure.DROP)
    life.goes_on(Observations(ROLES))
    fails(life, seen(researcher=0, searcher=0))

    assert life.state.question is None
    assert life.step("a").attempt == 1


def test_a_job_whose_failure_nobody_answers_ends_in_time() -> None:
    life = tried_by_all(OnFailure.ASK)
    assert life.state.question
    life.now = life.state.question.until
    life.goes_on()

    assert life.state.status is JobStatus.CANCELLED


def test_a_person_is_asked_for_what_the_planner_does_not_know_either() -> None:
    life = planned(OnFailure.ASK)
    life.goes_on(Observations(ROLES))
    life.finishes("a", "needs_input", needs="the number of the house")
    life.goes_on()
    life.answers_needs(a=None)
    life.goes_on(Observations(ROLES))
    assert life.state.question

    life.rejects("It is number 9.")
    life.goes_on(Observations(ROLES))

    assert life.handoffs["a.2"].feedback[-1].text == "It is number 9."


def test_only_those_that_were_asked_about_are_let_go() -> None:
    life = tried_by_all(OnFailure.ASK)
    life.finishes("b", "failed", error="no")
    life.approves()
    life.goes_on(Observations(ROLES))

    assert life.step("a").is_let_go
    assert not life.step("b").is_let_go
    assert "b" in life.out, "it has its own second chances"


def test_a_retry_begins_with_all_chances() -> None:
    life = tried_by_all(OnFailure.ASK)
    life.approves()
    for step in ("b", "c", "d"):
        life.goes_on(seen(researcher=0, searcher=0))
        life.finishes(step)
    life.goes_on(Observations(ROLES))
    life.judges()
    life.goes_on()
    life.happens(RetryRequested())

    assert (life.step("a").failures, life.step("a").tried, life.step("a").is_let_go) == (
        0,
        (),
        False,
    )
