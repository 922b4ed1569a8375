"""Joins: a fan-in continues when all of its parts have ended, or when its join has enough
results. Parts that are still running are then abandoned.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from handoff_queue.shared.types.events import LAST, CountedFanIn
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.step import Join
from handoff_queue.supervisor.lifecycle.commands import AbandonSteps
from handoff_queue.supervisor.lifecycle.state import JobState, StepStatus

NOTHING_TO_BUILD_ON = "everything that it depends on failed"


class JoinState(StrEnum):
    """State of a fan-in."""

    OPEN = "open"
    """It waits for results."""
    MET = "met"
    """It can continue."""
    BROKEN = "broken"
    """It can never continue."""


@dataclass(frozen=True, slots=True)
class FanIn:
    """A step or the answer, with the steps whose results it waits for."""

    step: StepId | None
    """The step that waits; None: the answer."""
    parts: tuple[StepId, ...]
    """The steps whose results are counted. Empty for an answer without a join."""
    join: Join | None
    """The results that are needed. None: all parts must have ended, and one must be usable."""
    helpers: tuple[StepId, ...] = ()
    """Added steps that must have ended, with any outcome."""


def get_fan_in(state: JobState, step_id: StepId) -> FanIn:
    """Return the fan-in of a step."""
    outline = state.steps[step_id].outline
    parts = tuple(part for part in outline.depends_on if part not in outline.helpers)
    join = None
    if not state.waits_for_all:
        join = outline.join
    return FanIn(step_id, parts, join, outline.helpers)


def get_last_fan_in(state: JobState) -> FanIn:
    """Return the fan-in of the answer."""
    join = None
    if state.plan and not state.waits_for_all:
        join = state.plan.join
    return FanIn(None, state.sinks if join else (), join)


def evaluate_join(state: JobState, fan_in: FanIn, now: float) -> tuple[JoinState, str]:
    """Return the state of a fan-in, and the reason as text. The reason is '' for an open
    fan-in, and for a fan-in without a join that can continue.
    """
    if any(not state.steps[helper].is_settled for helper in fan_in.helpers):
        return JoinState.OPEN, ""
    parts = [state.steps[part] for part in fan_in.parts]
    usable = sum(part.is_usable for part in parts)
    left = sum(not part.is_settled for part in parts)
    if fan_in.join is None:
        return _evaluate_without_join(fan_in, usable, left)
    why_broken = _explain_broken(state, fan_in.join, usable, left)
    if why_broken:
        return JoinState.BROKEN, why_broken
    why_met = _explain_met(state, fan_in, fan_in.join, usable, left, now)
    if why_met:
        return JoinState.MET, why_met
    return JoinState.OPEN, ""


def _evaluate_without_join(fan_in: FanIn, usable: int, left: int) -> tuple[JoinState, str]:
    if left:
        return JoinState.OPEN, ""
    if fan_in.parts and not usable:
        return JoinState.BROKEN, NOTHING_TO_BUILD_ON
    return JoinState.MET, ""


def is_met(state: JobState, fan_in: FanIn, now: float) -> bool:
    """Return whether a fan-in can continue."""
    return evaluate_join(state, fan_in, now)[0] is JoinState.MET


def _explain_broken(state: JobState, join: Join, usable: int, left: int) -> str:
    """Return why the join can never be satisfied; '' if it still can.

    Args:
        usable: number of parts with a usable result.
        left: number of parts that are not settled.
    """
    failed_steps: list[StepId] = []
    for must in join.must:
        if state.steps[must].is_settled and not state.steps[must].is_usable:
            failed_steps.append(must)
    if failed_steps:
        return f"it must have {', '.join(failed_steps)}, which failed"
    if usable + left < join.at_least:
        return (
            f"it needs at least {join.at_least} results, and only {usable + left} can still be"
            " there"
        )
    return ""


def _explain_met(
    state: JobState, fan_in: FanIn, join: Join, usable: int, left: int, now: float
) -> str:
    """Return why the fan-in continues now; '' if it waits.

    Args:
        usable: number of parts with a usable result.
        left: number of parts that are not settled.
    """
    if usable < join.at_least or not all(state.steps[must].is_usable for must in join.must):
        return ""
    if not left or usable >= (join.enough or len(fan_in.parts)):
        return f"{usable} of {len(fan_in.parts)} results were enough"
    until = _compute_time_limit(state, fan_in)
    if until is not None and now >= until:
        return f"{usable} of {len(fan_in.parts)} results were there after {join.within_s} s"
    return ""


def is_wanted(state: JobState, dependents: frozenset[StepId], now: float) -> bool:
    """Return whether any fan-in still needs a step.

    Args:
        dependents: dependents of that step.
    """
    for fan_in in _list_fan_ins(state, dependents):
        is_needed = fan_in.join is None or not is_met(state, fan_in, now)
        if is_needed:
            return True
    return False


def _list_fan_ins(state: JobState, dependents: Collection[StepId]) -> list[FanIn]:
    """Return the fan-ins that wait for a step with these dependents."""
    if dependents:
        return [get_fan_in(state, dependent) for dependent in dependents]
    return [get_last_fan_in(state)]


def abandon_late_steps(state: JobState, now: float) -> tuple[AbandonSteps, ...]:
    """Return the command that abandons the running steps for which the first satisfied join
    does not wait; empty if there are none.
    """
    for fan_in in _list_fan_ins_with_join(state):
        join, why = evaluate_join(state, fan_in, now)
        if join is not JoinState.MET:
            continue
        late_steps = _find_late_steps(state, fan_in)
        if late_steps:
            waiting = fan_in.step or "the answer"
            return (AbandonSteps(late_steps, f"not waited for: {why} for {waiting}"),)
    return ()


def find_next_join_end(state: JobState, now: float) -> float | None:
    """Return the next time limit of a waiting fan-in, as a Unix time in seconds; None if no
    time limit lies ahead.
    """
    limits: list[float] = []
    for fan_in in _list_fan_ins_with_join(state):
        limit = _compute_time_limit(state, fan_in)
        if limit is not None and limit > now:
            limits.append(limit)
    return min(limits, default=None)


def list_counted_fan_ins(
    state: JobState, dependents: frozenset[StepId]
) -> tuple[CountedFanIn, ...]:
    """Return the fan-ins with a join that wait for a step. They may continue before all of
    their parts have ended.

    Args:
        dependents: dependents of that step.
    """
    if dependents and not any(state.steps[dependent].outline.join for dependent in dependents):
        return ()  # thousands of steps may share a fan-in without a join: do not build its parts
    counted_fan_ins: list[CountedFanIn] = []
    for fan_in in _list_fan_ins(state, sorted(dependents)):
        if fan_in.join:
            wakes_from = _count_needed_results(fan_in.join, len(fan_in.parts))
            counted_fan_ins.append(CountedFanIn(fan_in=fan_in.step or LAST, wakes_from=wakes_from))
    return tuple(counted_fan_ins)


def _list_fan_ins_with_join(state: JobState) -> list[FanIn]:
    """Return the fan-ins with a join, of waiting steps and of the answer."""
    if state.plan is None or state.waits_for_all:
        return []
    waiting: list[FanIn] = []
    for step_id in state.step_index.next:
        if state.steps[step_id].outline.join:
            waiting.append(get_fan_in(state, step_id))
    if state.plan.join:
        return [*waiting, get_last_fan_in(state)]
    return waiting


def _find_late_steps(state: JobState, fan_in: FanIn) -> tuple[StepId, ...]:
    """Return the unsettled parts of a fan-in, and their unsettled dependencies, for which no
    other waiting step waits, in the plan's order.
    """
    dependents = state.dependents
    late_steps: set[StepId] = set()
    frontier = list(fan_in.parts)
    while frontier:
        step_id = frontier.pop()
        if step_id in late_steps or state.steps[step_id].is_settled:
            continue
        others = dependents[step_id] - late_steps - {fan_in.step}
        if not _is_any_waiting(state, others):
            late_steps.add(step_id)
            frontier += state.steps[step_id].outline.depends_on
    return tuple(step_id for step_id in state.steps if step_id in late_steps)


def _is_any_waiting(state: JobState, step_ids: Collection[StepId]) -> bool:
    return any(state.steps[step_id].status is StepStatus.WAITING for step_id in step_ids)


def _count_needed_results(join: Join, parts: int) -> int:
    """Return the number of usable results from which the fan-in may continue. With a time
    limit it is `at_least`, because after that time this number is enough.
    """
    if join.within_s:
        return join.at_least
    return join.enough or parts


def _compute_time_limit(state: JobState, fan_in: FanIn) -> float | None:
    """Return the end of the fan-in's time as a Unix time in seconds; None if it has no time
    limit or no part has begun.

    The time counts from the first part that began after work was last sent back. Waits for a
    person do not count.
    """
    if fan_in.join is None or fan_in.join.within_s is None:
        return None
    since = max(state.started_at, state.sent_back_at)
    beginnings: list[float] = []
    for part in fan_in.parts:
        step = state.steps[part]
        if step.began_at >= since:
            waited_since_s = max(0.0, state.waited_s - step.waited_before_s)
            beginnings.append(step.began_at + waited_since_s)
    if not beginnings:
        return None
    return min(beginnings) + fan_in.join.within_s
