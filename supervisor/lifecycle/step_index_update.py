"""Incremental update of the step index: its cost depends on the changed steps, not on the
number of all steps. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from handoff_queue.shared.types.ids import HandoffId, StepId
from handoff_queue.supervisor.lifecycle.persistent_map import PersistentMap
from handoff_queue.supervisor.lifecycle.plan_graph import PlanGraph, plan_graph_of
from handoff_queue.supervisor.lifecycle.state import JobState, StepIndex, StepState, StepStatus

Steps = Mapping[StepId, StepState]


def step_index_of(state: JobState) -> StepIndex:
    """Return the step index, computed from all steps."""
    waits_for: dict[StepId, int] = {}
    next_steps: list[StepId] = []
    in_need: list[StepId] = []
    unusable: list[StepId] = []
    for step_id, step in state.steps.items():
        waits_for[step_id] = _waits_for(step, state.steps)
        if _is_next(step, waits_for[step_id]):
            next_steps.append(step_id)
        if _is_in_need(step):
            in_need.append(step_id)
        if _is_unusable(step):
            unusable.append(step_id)
    apart: list[HandoffId] = []
    for handoff_id, handoff in state.open.items():
        if handoff.group is None:
            apart.append(handoff_id)
    steps = state.steps.values()
    return StepIndex(
        next=tuple(next_steps),
        in_need=tuple(in_need),
        unusable=tuple(unusable),
        unsettled=_count_unsettled(steps),
        waits_for=PersistentMap(waits_for),
        written=_size(steps),
        unwritten=_count_unwritten(steps),
        apart=tuple(apart),
    )


def overview_after(before: JobState, later: JobState) -> StepIndex:
    """Return the step index of a later state.

    Args:
        before: state with its index. The index of `later` is ignored.
    """
    if later.steps is before.steps:
        if later.open is before.open:
            return before.step_index
        return replace(before.step_index, apart=_apart(before, later))
    if before.plan is None or later.plan is None or before.plan.steps is not later.plan.steps:
        return step_index_of(later)
    index, graph = before.step_index, plan_graph_of(later.plan.steps)
    changed = later.steps.changed_since(before.steps)
    new_steps = _steps_by_id(later.steps, changed)
    old_steps = _steps_by_id(before.steps, changed)
    settled_less: dict[StepId, int] = {}
    for step_id in changed:
        less = old_steps[step_id].is_settled - new_steps[step_id].is_settled
        if less:
            for dependent in graph.dependents[step_id]:
                settled_less[dependent] = settled_less.get(dependent, 0) + less
    waits_for = _updated_counts(index.waits_for, settled_less)
    touched = _steps_by_id(later.steps, (*changed, *settled_less))
    next_steps: dict[StepId, bool] = {}
    in_need: dict[StepId, bool] = {}
    unusable: dict[StepId, bool] = {}
    for step_id, step in touched.items():
        next_steps[step_id] = _is_next(step, waits_for[step_id])
        in_need[step_id] = _is_in_need(step)
        unusable[step_id] = _is_unusable(step)
    new, old = new_steps.values(), old_steps.values()
    return StepIndex(
        next=_updated_members(index.next, next_steps, graph),
        in_need=_updated_members(index.in_need, in_need, graph),
        unusable=_updated_members(index.unusable, unusable, graph),
        unsettled=index.unsettled + _count_unsettled(new) - _count_unsettled(old),
        waits_for=waits_for,
        written=index.written + _size(new) - _size(old),
        unwritten=index.unwritten + _count_unwritten(new) - _count_unwritten(old),
        apart=_apart(before, later),
    )


def _steps_by_id(steps: Steps, step_ids: Iterable[StepId]) -> dict[StepId, StepState]:
    return {step_id: steps[step_id] for step_id in step_ids}


def _updated_counts(
    counts: PersistentMap[StepId, int], changes: Mapping[StepId, int]
) -> PersistentMap[StepId, int]:
    """Return the numbers of unsettled dependencies with the changes added."""
    updated: dict[StepId, int] = {}
    for step_id, change in changes.items():
        if change:
            updated[step_id] = counts[step_id] + change
    if updated:
        return counts | updated
    return counts


def _updated_members(
    members: tuple[StepId, ...], belongs: Mapping[StepId, bool], graph: PlanGraph
) -> tuple[StepId, ...]:
    """Return the members of a list after some steps have changed, in the plan's order.

    Args:
        belongs: whether each changed step is a member now.
    """
    if not belongs:
        return members
    known = {*members}
    added: list[StepId] = []
    removed: set[StepId] = set()
    for step_id, is_member in belongs.items():
        if is_member and step_id not in known:
            added.append(step_id)
        elif step_id in known and not is_member:
            removed.add(step_id)
    if added:
        return tuple(sorted((*(known - removed), *added), key=graph.places.__getitem__))
    if removed:
        return tuple(step_id for step_id in members if step_id not in removed)
    return members


def _apart(before: JobState, later: JobState) -> tuple[HandoffId, ...]:
    """Return the open handoffs in no chord of the later state."""
    known = before.step_index.apart
    handoff_ids = [handoff_id for handoff_id in known if handoff_id in later.open]
    for handoff_id in later.open.changed_since(before.open):
        issued = later.open.get(handoff_id)
        if issued is not None and issued.group is None and handoff_id not in known:
            handoff_ids.append(handoff_id)
    return tuple(handoff_ids)


def _waits_for(step: StepState, steps: Steps) -> int:
    """Return the number of unsettled dependencies of a step."""
    count = 0
    for dependency in {*step.outline.depends_on}:
        count += not steps[dependency].is_settled
    return count


def _count_unsettled(steps: Iterable[StepState]) -> int:
    count = 0
    for step in steps:
        count += not step.is_settled
    return count


def _count_unwritten(steps: Iterable[StepState]) -> int:
    """Return the number of steps without a result."""
    count = 0
    for step in steps:
        count += step.result is None
    return count


def _is_next(step: StepState, waits_for: int) -> bool:
    """Return whether a step may begin: it waits, and all its dependencies are settled or it
    has a join.
    """
    return step.status is StepStatus.WAITING and (not waits_for or step.outline.join is not None)


def _is_in_need(step: StepState) -> bool:
    return step.status is StepStatus.IN_NEED


def _is_unusable(step: StepState) -> bool:
    return step.is_settled and not step.usable


def _size(steps: Iterable[StepState]) -> int:
    """Return the total size of the results of steps, in bytes."""
    total = 0
    for step in steps:
        if step.result:
            total += step.result.size
    return total
