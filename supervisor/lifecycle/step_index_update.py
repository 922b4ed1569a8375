"""Incremental update of the step index: an event costs as much as its changes, at any number of
steps. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from handoff_queue.shared.types.ids import HandoffId, StepId
from handoff_queue.supervisor.lifecycle.persistent_map import PersistentMap
from handoff_queue.supervisor.lifecycle.plan_graph import PlanGraph, shape_of
from handoff_queue.supervisor.lifecycle.state import JobState, StepIndex, StepState, StepStatus

Steps = Mapping[StepId, StepState]


def overview_of(state: JobState) -> StepIndex:
    """Return the step index, computed from all steps."""
    steps = state.steps
    waits_for = PersistentMap({step_id: _waits_for(step, steps) for step_id, step in steps.items()})
    results = [step.result.size for step in steps.values() if step.result]
    return StepIndex(
        next=tuple(
            step_id for step_id, step in steps.items() if _is_next(step, waits_for[step_id])
        ),
        in_need=tuple(step_id for step_id, step in steps.items() if _is_in_need(step)),
        unusable=tuple(step_id for step_id, step in steps.items() if _is_unusable(step)),
        unsettled=sum(not _is_settled(step) for step in steps.values()),
        waits_for=waits_for,
        written=sum(results),
        unwritten=len(steps) - len(results),
        apart=tuple(
            handoff_id for handoff_id, handoff in state.open.items() if handoff.group is None
        ),
    )


def overview_after(before: JobState, later: JobState) -> StepIndex:
    """Return the step index of a later state.

    Args:
        before: state with its index. The index of `later` is ignored.
    """
    if later.steps is before.steps:
        if later.open is before.open:
            return before.overview
        return replace(before.overview, apart=_apart(before, later))
    if before.plan is None or later.plan is None or before.plan.steps is not later.plan.steps:
        return overview_of(later)
    known, shape, changed = (
        before.overview,
        shape_of(later.plan.steps),
        later.steps.changed_since(before.steps),
    )
    steps, was = [later.steps[one] for one in changed], [before.steps[one] for one in changed]
    unsettled, waiting = 0, dict[StepId, int]()
    for step_id, new, old in zip(changed, steps, was, strict=True):
        if more := _is_settled(old) - _is_settled(new):
            unsettled += more
            for one in shape.dependents[step_id]:
                waiting[one] = waiting.get(one, 0) + more
    moved = {one: known.waits_for[one] + more for one, more in waiting.items() if more}
    if moved:
        waits_for = known.waits_for | moved
    else:
        waits_for = known.waits_for
    touched = {one: later.steps[one] for one in (*changed, *waiting)}
    return StepIndex(
        next=_moved(known.next, touched, lambda one: _is_next(touched[one], waits_for[one]), shape),
        in_need=_moved(known.in_need, touched, lambda one: _is_in_need(touched[one]), shape),
        unusable=_moved(known.unusable, touched, lambda one: _is_unusable(touched[one]), shape),
        unsettled=known.unsettled + unsettled,
        waits_for=waits_for,
        written=known.written + _size(steps) - _size(was),
        unwritten=known.unwritten
        + sum(not new.result for new in steps)
        - sum(not old.result for old in was),
        apart=_apart(before, later),
    )


def _moved(
    members: tuple[StepId, ...],
    touched: Collection[StepId],
    belongs: Callable[[StepId], bool],
    shape: PlanGraph,
) -> tuple[StepId, ...]:
    """Return the members after some steps have changed."""
    if not touched:
        return members
    known = {*members}
    come = [step_id for step_id in touched if step_id not in known and belongs(step_id)]
    gone = {step_id for step_id in touched if step_id in known and not belongs(step_id)}
    if not come:
        if gone:
            ones: list[StepId] = []
            for member in members:
                if member not in gone:
                    ones.append(member)
            return tuple(ones)
        return members
    return tuple(sorted((*(known - gone), *come), key=shape.places.__getitem__))


def _apart(before: JobState, later: JobState) -> tuple[HandoffId, ...]:
    known, changed = before.overview.apart, later.open.changed_since(before.open)
    come = (
        handoff_id
        for handoff_id in changed
        if handoff_id not in known
        and handoff_id in later.open
        and later.open[handoff_id].group is None
    )
    return (*(handoff_id for handoff_id in known if handoff_id in later.open), *come)


def _waits_for(step: StepState, steps: Steps) -> int:
    total = 0
    for dependency in {*step.outline.depends_on}:
        total += not _is_settled(steps[dependency])
    return total


def _is_settled(step: StepState) -> bool:
    return step.status is StepStatus.SETTLED


def _is_next(step: StepState, waits_for: int) -> bool:
    return step.status is StepStatus.WAITING and (not waits_for or step.outline.join is not None)


def _is_in_need(step: StepState) -> bool:
    return step.status is StepStatus.IN_NEED


def _is_unusable(step: StepState) -> bool:
    return _is_settled(step) and not step.usable


def _size(steps: Collection[StepState]) -> int:
    total = 0
    for step in steps:
        if step.result:
            total += step.result.size
    return total
