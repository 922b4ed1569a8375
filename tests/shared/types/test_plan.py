"""A plan is valid, or is refused with all of its problems."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from handoff_queue.shared.types.errors import MalformedMessage
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.names import ROLES
from handoff_queue.shared.types.plan import Plan, Synthesis
from handoff_queue.shared.types.plan_validation import (
    count_problems,
    find_name_problems,
    shape_problems,
)
from handoff_queue.shared.types.step import Step


def step(name: str, *depends_on: str, specialist: str = "researcher") -> Step:
    return Step(
        id=StepId(name),
        specialist=specialist,
        task="Find out.",
        depends_on=tuple(map(StepId, depends_on)),
    )


def plan(*steps: Step) -> Plan:
    return Plan(steps=steps)


@st.composite
def dags(draw: st.DrawFn) -> tuple[Step, ...]:
    """Generate steps without a cycle, in any order."""
    count = draw(st.integers(1, 12))
    steps = [
        step(f"s{n}", *(f"s{m}" for m in range(n) if draw(st.booleans()))) for n in range(count)
    ]
    return tuple(draw(st.permutations(steps)))


@given(dags())
def test_any_dag_is_a_plan_whose_steps_begin_after_their_dependencies(
    steps: tuple[Step, ...],
) -> None:
    plan_of_steps, started = plan(*steps), list[StepId]()
    open_for = {each.id: set(each.depends_on) for each in plan_of_steps.steps}
    assert {
        (before, after) for before, waiting in plan_of_steps.dependents.items() for after in waiting
    } == {(before, after) for after, waited_for in open_for.items() for before in waited_for}
    while ready := [
        name for name in plan_of_steps.by_id if not open_for[name] and name not in started
    ]:
        started.append(ready[0])
        for after in plan_of_steps.dependents[ready[0]]:
            open_for[after].remove(ready[0])
    assert sorted(started) == sorted(each.id for each in steps)


@given(dags())
def test_every_plan_has_a_sink_and_no_step_waits_for_a_sink(
    steps: tuple[Step, ...],
) -> None:
    plan_of_steps = plan(*steps)
    waited_for = {dependency for each in steps for dependency in each.depends_on}
    assert plan_of_steps.sinks
    assert set(plan_of_steps.sinks) == set(plan_of_steps.by_id) - waited_for


@given(dags())
def test_a_plan_survives_json(steps: tuple[Step, ...]) -> None:
    plan_of_steps = plan(*steps)
    assert Plan.from_json(plan_of_steps.to_json()) == plan_of_steps


@given(dags(), st.data())
def test_a_cycle_is_refused_and_its_steps_are_named_in_order(
    steps: tuple[Step, ...], data: st.DataObject
) -> None:
    chain = data.draw(
        st.lists(st.sampled_from([each.id for each in steps]), min_size=1, unique=True)
    )
    closed = dict(zip(chain, chain[1:] + chain[:1], strict=True))
    bent = [
        each.model_copy(
            update={"depends_on": tuple(dict.fromkeys((*each.depends_on, closed[each.id])))}
        )
        if each.id in closed
        else each
        for each in steps
    ]
    with pytest.raises(ValidationError, match="cycle: ") as refused:
        plan(*bent)
    named = re.findall(r"cycle: ([\w ->]+?) \(", str(refused.value))
    depends_on = {each.id: each.depends_on for each in bent}
    for cycle in (text.split(" -> ") for text in named):
        assert cycle[0] == cycle[-1]
        assert all(StepId(before) in depends_on[StepId(after)] for before, after in pairwise(cycle))


def test_all_errors_are_reported_together() -> None:
    steps = [
        step("a", "b"),
        step("b", "a"),
        step("c", "nowhere"),
        step("d"),
        step("d"),
        step("e", "f"),
        step("f", "e"),
        step("g", "d", "d"),
    ]
    messages = "; ".join(shape_problems(steps))
    assert "step id d is used 2 times" in messages
    assert "step c depends on nowhere, which is not a step" in messages
    assert "step g names a dependency twice" in messages
    assert messages.count("cycle: ") == 2


def test_a_step_that_waits_for_itself_is_a_cycle() -> None:
    with pytest.raises(ValidationError, match="cycle: a -> a"):
        plan(step("a", "a"))


@pytest.mark.parametrize("role", ROLES)
def test_no_step_takes_the_name_of_a_role(role: str) -> None:
    with pytest.raises(
        ValidationError, match=f"step id {role} is the name of one of the supervisor's roles"
    ):
        plan(step(role))


def test_reviewer_is_a_name_like_any_other() -> None:
    assert plan(step("reviewer", specialist="reviewer")).sinks == ("reviewer",)


def test_a_plan_without_steps_is_refused() -> None:
    with pytest.raises(ValidationError, match="at least 1 item"):
        plan()


def test_dependents_are_listed_in_the_order_of_the_plan() -> None:
    plan_of_steps = plan(step("c", "a"), step("a"), step("b", "a"))
    assert plan_of_steps.dependents == {"c": (), "a": ("c", "b"), "b": ()}


def test_more_steps_than_a_job_may_have_are_counted() -> None:
    steps = (step("a"), step("b"), step("c"))
    assert count_problems(steps, max_steps=2) == [
        "3 steps, at most 2 are allowed: merge or drop some"
    ]
    assert count_problems(steps, max_steps=3) == []


def test_unserved_specialists_are_named() -> None:
    steps = (step("a"), step("b", specialist="oracle"))
    assert find_name_problems(steps, {"researcher", "writer"}) == [
        "step b: there is no specialist oracle; use one of researcher, writer"
    ]
    assert find_name_problems(steps, {"researcher", "oracle"}) == []


def test_a_plan_merges_unless_it_says_otherwise() -> None:
    assert plan(step("a")).synthesis is Synthesis.MERGE


def test_a_plan_from_json_with_a_cycle_is_a_malformed_message() -> None:
    sound = plan(step("a"), step("b", "a")).to_json()
    with pytest.raises(MalformedMessage, match="cycle"):
        Plan.from_json(sound.replace('"depends_on":[]', '"depends_on":["b"]'))


@pytest.mark.slow
def test_a_plan_of_ten_thousand_steps_in_a_row_is_checked_without_recursion() -> None:
    chain = [step("s0"), *(step(f"s{n}", f"s{n - 1}") for n in range(1, 10_000))]
    assert plan(*chain).sinks == ("s9999",)
