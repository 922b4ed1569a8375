"""The dependency graph of a plan, computed once for each plan."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from handoff_queue.shared.types.events import StepOutline
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.names import SUB_SUPERVISOR

MOST_KEPT = 64
"""Plans whose shape a process remembers: as many as it decides on at once, and more."""


@dataclass(frozen=True, slots=True)
class PlanGraph:
    dependents: Mapping[StepId, frozenset[StepId]]
    """Dependents of each step."""
    sinks: tuple[StepId, ...]
    """Steps without dependents, in the plan's order."""
    places: Mapping[StepId, int]
    """Position of each step in the plan's order."""
    after_review: frozenset[StepId]
    """The steps that begin after the review: the steps that say so, and their dependents."""
    has_teams: bool
    """True if a sub-supervisor does any step."""


_lock = threading.Lock()
_known: OrderedDict[int, tuple[tuple[StepOutline, ...], PlanGraph]] = OrderedDict()
"""Graphs by the identity of a plan's steps. The steps are kept, so that no other object gets the
same identity.
"""


def shape_of(steps: tuple[StepOutline, ...]) -> PlanGraph:
    with _lock:
        if (known := _known.get(id(steps))) is not None:
            _known.move_to_end(id(steps))
            return known[1]
    direct_dependents: dict[StepId, set[StepId]] = {step.id: set() for step in steps}
    for step in steps:
        for dependency in step.depends_on:
            direct_dependents[dependency].add(step.id)
    dependents = {step_id: frozenset(ids) for step_id, ids in direct_dependents.items()}
    shape = PlanGraph(
        dependents,
        tuple(step_id for step_id, waiting in dependents.items() if not waiting),
        {step_id: place for place, step_id in enumerate(dependents)},
        _after_review(steps, dependents),
        any(step.specialist == SUB_SUPERVISOR for step in steps),
    )
    with _lock:
        _known[id(steps)] = (steps, shape)
        while len(_known) > MOST_KEPT:
            _known.popitem(last=False)
    return shape


def _after_review(
    steps: tuple[StepOutline, ...], dependents: Mapping[StepId, frozenset[StepId]]
) -> frozenset[StepId]:
    after_review = set()
    for step in steps:
        if step.after is not None:
            after_review.add(step.id)
    frontier = list(after_review)
    while frontier:
        later = dependents[frontier.pop()] - after_review
        after_review |= later
        frontier += later
    return frozenset(after_review)
