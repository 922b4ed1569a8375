"""The step index of a state: the steps that may need a decision. Pure.

The index is updated incrementally: the cost depends on the changed steps, not on the number of
all steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from handoff_queue.shared.types.ids import HandoffId, StepId
from handoff_queue.supervisor.lifecycle.persistent_map import PersistentMap
from handoff_queue.supervisor.lifecycle.plan_graph import PlanGraph, get_plan_graph
from handoff_queue.supervisor.lifecycle.state import (
    JobState,
    StepIndex,
    StepState,
    StepStatus,
)

Steps = Mapping[StepId, StepState]


def compute_step_index(state: JobState) -> StepIndex:
    """Return the step index, computed from all steps."""
    waits_for: dict[StepId, int] = {}
    next_steps: list[StepId] = []
    in_need: list[StepId] = []
    unusable: list[StepId] = []
    for step_id, step in state.steps.items():
        waits_for[step_id] = _count_unsettled_dependencies(step, state.steps)
        if _is_next(step, waits_for[step_id]):
            next_steps.append(step_id)
        if _is_in_need(step):
            in_need.append(step_id)
        if _is_unusable(step):
            unusable.append(step_id)
    outside_chords: list[HandoffId] = []
    for handoff_id, handoff in state.open.items():
        if handoff.group is None:
            outside_chords.append(handoff_id)
    steps = state.steps.values()
    return StepIndex(
        next=tuple(next_steps),
        in_need=tuple(in_need),
        unusable=tuple(unusable),
        unsettled=_count_unsettled(steps),
        waits_for=PersistentMap(waits_for),
        result_bytes=_sum_result_sizes(steps),
        steps_without_result=_count_without_result(steps),
        outside_chords=tuple(outside_chords),
    )


def update_step_index(before: JobState, later: JobState) -> StepIndex:
    """Return the step index of a later state.

    Args:
        before: state with its index. The index of `later` is ignored.
    """
    if later.steps is before.steps:
        if later.open is before.open:
            return before.step_index
        return replace(
            before.step_index, outside_chords=_find_handoffs_outside_chords(before, later)
        )
    if before.plan is None or later.plan is None or before.plan.steps is not later.plan.steps:
        return compute_step_index(later)
    index, graph = before.step_index, get_plan_graph(later.plan.steps)
    changed_ids = later.steps.find_changed_keys(before.steps)
    new_steps = _select_steps(later.steps, changed_ids)
    old_steps = _select_steps(before.steps, changed_ids)
    wait_changes = _count_changed_waits(old_steps, new_steps, graph)
    waits_for = _add_to_counts(index.waits_for, wait_changes)
    next_steps: dict[StepId, bool] = {}
    in_need: dict[StepId, bool] = {}
    unusable: dict[StepId, bool] = {}
    for step_id, step in _select_steps(later.steps, (*changed_ids, *wait_changes)).items():
        next_steps[step_id] = _is_next(step, waits_for[step_id])
        in_need[step_id] = _is_in_need(step)
        unusable[step_id] = _is_unusable(step)
    new, old = new_steps.values(), old_steps.values()
    return StepIndex(
        next=_update_members(index.next, next_steps, graph),
        in_need=_update_members(index.in_need, in_need, graph),
        unusable=_update_members(index.unusable, unusable, graph),
        unsettled=index.unsettled + _count_unsettled(new) - _count_unsettled(old),
        waits_for=waits_for,
        result_bytes=index.result_bytes + _sum_result_sizes(new) - _sum_result_sizes(old),
        steps_without_result=index.steps_without_result
        + _count_without_result(new)
        - _count_without_result(old),
        outside_chords=_find_handoffs_outside_chords(before, later),
    )


def _select_steps(steps: Steps, step_ids: Iterable[StepId]) -> dict[StepId, StepState]:
    return {step_id: steps[step_id] for step_id in step_ids}


def _count_changed_waits(old_steps: Steps, new_steps: Steps, graph: PlanGraph) -> dict[StepId, int]:
    """Return by how much the number of unsettled dependencies changes, for each dependent of a
    step that was settled or reopened.

    Args:
        old_steps, new_steps: the changed steps before and after the change.
    """
    changes: dict[StepId, int] = {}
    for step_id, new_step in new_steps.items():
        change = old_steps[step_id].is_settled - new_step.is_settled
        if change:
            for dependent in graph.dependents[step_id]:
                changes[dependent] = changes.get(dependent, 0) + change
    return changes


def _add_to_counts(
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


def _update_members(
    members: tuple[StepId, ...], belongs: Mapping[StepId, bool], graph: PlanGraph
) -> tuple[StepId, ...]:
    """Return the members of a list after some steps have changed, in the plan's order.

    Args:
        belongs: whether each changed step is a member now.
    """
    if not belongs:
        return members
    known = {*members}
    added_ids: list[StepId] = []
    removed_ids: set[StepId] = set()
    for step_id, is_member in belongs.items():
        if is_member and step_id not in known:
            added_ids.append(step_id)
        elif step_id in known and not is_member:
            removed_ids.add(step_id)
    if added_ids:
        return tuple(sorted((*(known - removed_ids), *added_ids), key=graph.places.__getitem__))
    if removed_ids:
        return tuple(step_id for step_id in members if step_id not in removed_ids)
    return members


def _find_handoffs_outside_chords(before: JobState, later: JobState) -> tuple[HandoffId, ...]:
    """Return the open handoffs in no chord of the later state."""
    known = before.step_index.outside_chords
    handoff_ids = [handoff_id for handoff_id in known if handoff_id in later.open]
    for handoff_id in later.open.find_changed_keys(before.open):
        issued = later.open.get(handoff_id)
        if issued is not None and issued.group is None and handoff_id not in known:
            handoff_ids.append(handoff_id)
    return tuple(handoff_ids)


def _count_unsettled_dependencies(step: StepState, steps: Steps) -> int:
    """Return the number of unsettled dependencies of a step."""
    dependencies = {*step.outline.depends_on}
    return _count_unsettled(steps[dependency] for dependency in dependencies)


def _count_unsettled(steps: Iterable[StepState]) -> int:
    return sum(not step.is_settled for step in steps)


def _count_without_result(steps: Iterable[StepState]) -> int:
    """Return the number of steps without a result."""
    return sum(step.result is None for step in steps)


def _is_next(step: StepState, waits_for: int) -> bool:
    """Return whether a step may begin: it waits, and all its dependencies are settled or it
    has a join.

    Args:
        waits_for: number of its unsettled dependencies.
    """
    if step.status is not StepStatus.WAITING:
        return False
    return waits_for == 0 or step.outline.join is not None


def _is_in_need(step: StepState) -> bool:
    return step.status is StepStatus.IN_NEED


def _is_unusable(step: StepState) -> bool:
    return step.is_settled and not step.is_usable


def _sum_result_sizes(steps: Iterable[StepState]) -> int:
    """Return the total size of the results of steps, in bytes."""
    total = 0
    for step in steps:
        if step.result:
            total += step.result.size
    return total
