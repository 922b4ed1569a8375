"""Joins: a fan-in continues when all of its parts have ended, or when its join has enough results.
Late parts are abandoned.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from handoff_queue.shared.types.events import LAST, Counted
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.plan import Join
from handoff_queue.supervisor.lifecycle.commands import AbandonSteps, SkipSteps
from handoff_queue.supervisor.lifecycle.retry_reducer import in_doubt
from handoff_queue.supervisor.lifecycle.state import JobState, StepStatus

ALL_SKIPPED = "the steps that it depends on were skipped"
NOTHING_TO_BUILD_ON = "everything that it depends on failed"


class JoinStanding(StrEnum):
    OPEN = "open"
    MET = "met"
    BROKEN = "broken"
    """The join can never be satisfied."""


@dataclass(frozen=True, slots=True)
class FanIn:
    """A point at which results meet."""

    step: StepId | None
    """The step that waits for the results; None: the answer."""
    parts: tuple[StepId, ...]
    join: Join | None
    helpers: tuple[StepId, ...] = ()
    """Added steps that must have ended, with any outcome."""


def fan_in_of(state: JobState, step_id: StepId) -> FanIn:
    outline = state.steps[step_id].outline
    parts = tuple(
        dependency for dependency in outline.depends_on if dependency not in outline.helpers
    )
    return FanIn(step_id, parts, None if state.waits_for_all else outline.join, outline.helpers)


def last_fan_in(state: JobState) -> FanIn:
    join = None
    if state.plan and not state.waits_for_all:
        join = state.plan.join
    return FanIn(None, state.sinks if join else (), join)


def standing(state: JobState, fan_in: FanIn, now: float) -> tuple[JoinStanding, str]:
    """Return the standing of a fan-in, with the reason as text."""
    if any(state.steps[helper].status is not StepStatus.SETTLED for helper in fan_in.helpers):
        return JoinStanding.OPEN, ""
    parts = [state.steps[part] for part in fan_in.parts]
    usable, left = (
        sum(part.usable for part in parts),
        sum(part.status is not StepStatus.SETTLED for part in parts),
    )
    if fan_in.join is None:
        if left:
            return JoinStanding.OPEN, ""
        return (
            (JoinStanding.MET, "")
            if usable or not parts
            else (JoinStanding.BROKEN, NOTHING_TO_BUILD_ON)
        )
    if why := _never(state, fan_in.join, usable, left):
        return JoinStanding.BROKEN, why
    why = _enough(state, fan_in, fan_in.join, usable, left, now)
    return (JoinStanding.MET, why) if why else (JoinStanding.OPEN, "")


def _never(state: JobState, join: Join, usable: int, left: int) -> str:
    """Return why the join can never be satisfied; '' if it still can."""
    failed: list[StepId] = []
    for must in join.must:
        if state.steps[must].status is StepStatus.SETTLED and not state.steps[must].usable:
            failed.append(must)
    if failed:
        return f"it must have {', '.join(failed)}, which failed"
    if usable + left < join.at_least:
        return f"it needs at least {join.at_least} results, and only {usable + left} can still be there"
    return ""


def _enough(state: JobState, fan_in: FanIn, join: Join, usable: int, left: int, now: float) -> str:
    """Return why the fan-in continues now; '' if it waits."""
    if usable < join.at_least or not all(state.steps[must].usable for must in join.must):
        return ""
    if not left or usable >= (join.enough or len(fan_in.parts)):
        return f"{usable} of {len(fan_in.parts)} results were enough"
    until = _until(state, fan_in)
    if until is not None and now >= until:
        return f"{usable} of {len(fan_in.parts)} results were there after {join.within_s} s"
    return ""


def is_wanted(state: JobState, dependents: frozenset[StepId], now: float) -> bool:
    """Return whether any fan-in still needs a step.

    Args:
        dependents: dependents of that step.
    """
    if dependents:
        fan_ins = [fan_in_of(state, fan_in) for fan_in in dependents]
    else:
        fan_ins = [last_fan_in(state)]
    return any(
        fan_in.join is None or standing(state, fan_in, now)[0] is not JoinStanding.MET
        for fan_in in fan_ins
    )


def late(state: JobState, now: float) -> tuple[AbandonSteps, ...]:
    """Return the steps that the next satisfied fan-in does not wait for."""
    for fan_in in _joined(state):
        how, why = standing(state, fan_in, now)
        if how is JoinStanding.MET and (steps := _late_for(state, fan_in)):
            return (
                AbandonSteps(steps, f"not waited for: {why} for {fan_in.step or 'the answer'}"),
            )
    return ()


def hopeless(state: JobState, now: float) -> tuple[AbandonSteps | SkipSteps, ...]:
    """Return the steps that can never begin.

    A step is skipped if each step that it lacks was skipped.
    """
    broken: dict[str, list[StepId]] = {}
    skipped: list[StepId] = []
    for step_id in state.overview.next:
        if state.steps[step_id].outline.depends_on:
            fan_in = fan_in_of(state, step_id)
            how, why = standing(state, fan_in, now)
            if how is JoinStanding.BROKEN and _lacks_only_skipped(state, fan_in):
                skipped.append(step_id)
            elif how is JoinStanding.BROKEN:
                broken.setdefault(why, []).append(step_id)
    lost = tuple(AbandonSteps(tuple(steps), why) for why, steps in broken.items())
    if skipped:
        return (*lost, SkipSteps(tuple(skipped), ALL_SKIPPED))
    return lost


def _lacks_only_skipped(state: JobState, fan_in: FanIn) -> bool:
    parts = (state.steps[part] for part in fan_in.parts)
    lacking = [step for step in parts if step.status is StepStatus.SETTLED and not step.usable]
    return bool(lacking) and all(step.is_skipped for step in lacking)


def ready(state: JobState, now: float) -> list[StepId]:
    """Return the steps that can begin. They depend on no result that may have to be made again."""
    doubtful = in_doubt(state)
    waiting = (
        step_id
        for step_id in state.overview.next
        if doubtful.isdisjoint(state.steps[step_id].outline.depends_on)
    )
    return [
        step_id
        for step_id in waiting
        if standing(state, fan_in_of(state, step_id), now)[0] is JoinStanding.MET
    ]


def next_join(state: JobState, now: float) -> float | None:
    """Return the time of the next fan-in's time limit; None: there is no limit. Unix time in
    seconds.
    """
    ends = (_until(state, fan_in) for fan_in in _joined(state))
    return min((until for until in ends if until is not None and until > now), default=None)


def fan_ins_to_count(state: JobState, dependents: frozenset[StepId]) -> tuple[Counted, ...]:
    """Return the fan-ins that may continue before all of their parts have ended, among the fan-ins
    that wait for a step.

    Args:
        dependents: dependents of that step.
    """
    if dependents and not any(state.steps[dependent].outline.join for dependent in dependents):
        return ()  # of a plain one, which thousands may share, not even the parts are looked for
    if dependents:
        fan_ins = [fan_in_of(state, dependent) for dependent in sorted(dependents)]
    else:
        fan_ins = [last_fan_in(state)]
    counteds: list[Counted] = []
    for fan_in in fan_ins:
        if fan_in.join:
            counteds.append(
                Counted(
                    fan_in=fan_in.step or LAST,
                    wakes_from=_wakes_from(fan_in.join, len(fan_in.parts)),
                )
            )
    return tuple(counteds)


def _joined(state: JobState) -> list[FanIn]:
    """Return the waiting fan-ins with a join."""
    if state.plan is None or state.waits_for_all:
        return []
    waiting: list[FanIn] = []
    for step_id in state.overview.next:
        if state.steps[step_id].outline.join:
            waiting.append(fan_in_of(state, step_id))
    if state.plan.join:
        return [*waiting, last_fan_in(state)]
    return waiting


def _late_for(state: JobState, fan_in: FanIn) -> tuple[StepId, ...]:
    """Return the running work that only this fan-in waits for. The fan-in continues without it."""
    dependents, late = state.dependents, dict[StepId, None]()
    frontier = list(fan_in.parts)
    while frontier:
        step_id = frontier.pop()
        if step_id in late or state.steps[step_id].status is StepStatus.SETTLED:
            continue
        waiting = (
            dependent
            for dependent in dependents[step_id]
            if dependent != fan_in.step and dependent not in late
        )
        if all(state.steps[dependent].status is not StepStatus.WAITING for dependent in waiting):
            late[step_id] = None
            frontier += state.steps[step_id].outline.depends_on
    step_ids: list[StepId] = []
    for step in state.steps:
        if step in late:
            step_ids.append(step)
    return tuple(step_ids)


def _wakes_from(join: Join, parts: int) -> int:
    """Return the number of usable results from which the fan-in may continue: after its time limit,
    the smallest useful number.
    """
    if join.within_s:
        return join.at_least
    return join.enough or parts


def _until(state: JobState, fan_in: FanIn) -> float | None:
    """Return the end of the fan-in's time; None if it has no limit or has not begun. Returned work
    restarts the time, and the time of a question to a person does not count.
    """
    if fan_in.join is None or fan_in.join.within_s is None:
        return None
    since = max(state.started_at, state.sent_back_at)
    parts = (state.steps[part] for part in fan_in.parts)
    begun = (
        part.began_at + max(0.0, state.waited_s - part.waited_before_s)
        for part in parts
        if part.began_at >= since
    )
    began_at = min(begun, default=None)
    if began_at is None:
        return None
    return began_at + fan_in.join.within_s
