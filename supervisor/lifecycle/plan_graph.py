"""The dependency graph of a plan, computed once for each plan.

`shared/types/plan.py` refuses a plan with a cycle.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from handoff_queue.shared.types.events import StepOutline
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST

MAX_CACHED_GRAPHS = 64
"""Most plans whose graphs a process keeps. It decides on fewer jobs at once."""


@dataclass(frozen=True, slots=True)
class PlanGraph:
    """The dependency graph of a plan, and facts that follow from it."""

    dependents: Mapping[StepId, frozenset[StepId]]
    """Dependents of each step."""
    sinks: tuple[StepId, ...]
    """Steps without dependents, in the plan's order."""
    places: Mapping[StepId, int]
    """Position of each step in the plan's order."""
    after_review: frozenset[StepId]
    """The steps that begin after the review: the steps with `after: review`, and their direct
    and indirect dependents.
    """
    steps_after: Mapping[StepId, int]
    """Number of steps in the longest chain of dependents after each step."""
    has_child_jobs: bool
    """True if a child job does any step."""


_lock = threading.Lock()
_known: OrderedDict[int, tuple[tuple[StepOutline, ...], PlanGraph]] = OrderedDict()
"""Graphs by `id()` of a plan's steps. The steps are kept too, so that no other object gets the
same id.
"""


def get_plan_graph(steps: tuple[StepOutline, ...]) -> PlanGraph:
    """Return the graph of a plan's steps, computed or kept."""
    with _lock:
        known = _known.get(id(steps))
        if known is not None:
            _known.move_to_end(id(steps))
            _, graph = known
            return graph
    graph = _build_graph(steps)
    with _lock:
        _known[id(steps)] = (steps, graph)
        while len(_known) > MAX_CACHED_GRAPHS:
            _known.popitem(last=False)
    return graph


def _build_graph(steps: tuple[StepOutline, ...]) -> PlanGraph:
    direct_dependents: dict[StepId, set[StepId]] = {step.id: set() for step in steps}
    has_child_jobs = False
    for step in steps:
        has_child_jobs = has_child_jobs or step.specialist == CHILD_JOB_SPECIALIST
        for dependency in step.depends_on:
            direct_dependents[dependency].add(step.id)
    dependents: dict[StepId, frozenset[StepId]] = {}
    places: dict[StepId, int] = {}
    sinks: list[StepId] = []
    for place, (step_id, ids) in enumerate(direct_dependents.items()):
        dependents[step_id] = frozenset(ids)
        places[step_id] = place
        if not ids:
            sinks.append(step_id)
    return PlanGraph(
        dependents=dependents,
        sinks=tuple(sinks),
        places=places,
        after_review=_find_ids_after_review(steps, dependents),
        steps_after=_count_steps_after(steps, dependents),
        has_child_jobs=has_child_jobs,
    )


def _count_steps_after(
    steps: tuple[StepOutline, ...], dependents: Mapping[StepId, frozenset[StepId]]
) -> dict[StepId, int]:
    """Return the length of the longest chain of dependents after each step. A step is counted when
    all its dependents are.
    """
    dependencies: dict[StepId, list[StepId]] = {}
    for step in steps:
        dependencies[step.id] = [name for name in step.depends_on if name in dependents]
    left = {step_id: len(ids) for step_id, ids in dependents.items()}
    counts = dict.fromkeys(dependents, 0)
    ready = [step_id for step_id, missing in left.items() if not missing]
    while ready:
        step_id = ready.pop()
        for dependency in dependencies[step_id]:
            counts[dependency] = max(counts[dependency], counts[step_id] + 1)
            left[dependency] -= 1
            if not left[dependency]:
                ready.append(dependency)
    return counts


def _find_ids_after_review(
    steps: tuple[StepOutline, ...], dependents: Mapping[StepId, frozenset[StepId]]
) -> frozenset[StepId]:
    marked = {step.id for step in steps if step.after is not None}
    return frozenset(marked | find_reachable(marked, dependents.__getitem__))


def find_reachable(
    roots: Iterable[StepId], neighbours: Callable[[StepId], Iterable[StepId]]
) -> set[StepId]:
    """Return the steps that are reached from the roots in one or more moves along the graph.

    Args:
        neighbours: returns the direct dependents of a step, or its direct dependencies.
    """
    reached: set[StepId] = set()
    frontier = list(roots)
    while frontier:
        new = set(neighbours(frontier.pop())) - reached
        reached |= new
        frontier += new
    return reached
