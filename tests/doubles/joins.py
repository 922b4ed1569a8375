"""Invariants of every join."""

from __future__ import annotations

from handoff_queue.shared.types.ids import StepId
from handoff_queue.supervisor.lifecycle.state import Phase, StepState, StepStatus
from tests.doubles.effects import waits_for_review_or_person
from tests.doubles.life import Life


def parts_of(step: StepState) -> list[StepId]:
    """Return the dependencies without input steps, which the step needs under every join."""
    return [one for one in step.outline.depends_on if one not in step.outline.helpers]


def check_begins(life: Life, step: StepState) -> None:
    """Check that the step has its inputs, and that its join allows the start without the others."""
    assert not doubtful(life, step), "nobody builds on what may yet be done again"
    join, parts = step.outline.join, parts_of(step)
    assert all(life.step(helper).status is StepStatus.SETTLED for helper in step.outline.helpers), (
        "what it needs is not found out yet"
    )
    all_have_ended = all(life.step(part).status is StepStatus.SETTLED for part in parts)
    if join is None or life.state.waits_for_all:
        assert all_have_ended
        return
    usable = {part for part in parts if life.step(part).usable}
    assert usable >= {*join.must}
    assert len(usable) >= join.at_least
    is_late = join.within_s is not None and any(
        life.now >= life.step(part).began_at + join.within_s for part in parts
    )
    assert is_late or all_have_ended or (join.enough is not None and len(usable) >= join.enough)


def check_nothing_waits_that_could_begin(life: Life) -> None:
    for step in life.state.steps.values():
        if doubtful(life, step) or waits_for_review_or_person(life, step.outline.id, step):
            continue
        join, parts = step.outline.join, parts_of(step)
        is_helped = any(
            life.step(helper).status is not StepStatus.SETTLED for helper in step.outline.helpers
        )
        if is_helped:
            continue
        if (
            step.status is StepStatus.WAITING
            and join
            and join.enough
            and not life.state.waits_for_all
        ):
            usable = {part for part in parts if life.step(part).usable}
            assert len(usable) < join.enough or not usable >= {*join.must}
        if (
            step.status is StepStatus.WAITING
            and join is None
            and life.state.phase is Phase.WORKING
            and not life.state.rejected
        ):
            check_waits_for_something(life, step)


def doubtful(life: Life, step: StepState) -> list[StepId]:
    """Held results that it builds on, above which something has not ended."""
    unsettled = frozenset(
        name for name, one in life.state.steps.items() if one.status is not StepStatus.SETTLED
    )
    may_change = life.state.downstream(unsettled)
    return [
        part
        for part in step.outline.depends_on
        if part in life.state.held.steps and part in may_change
    ]


def check_waits_for_something(life: Life, step: StepState) -> None:
    """Check that the step waits for an open part.

    If no part is usable, an open role must still be able to change the plan.
    """
    parts = [life.step(part) for part in parts_of(step)]
    if all(part.status is StepStatus.SETTLED for part in parts):
        assert parts
        assert any(handoff.is_of_a_role for handoff in life.state.open.values())
        assert not any(part.usable for part in parts)
