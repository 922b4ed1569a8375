"""Validates the steps of a plan as a DAG: names, dependencies, cycles, joins and conditions.

Checks return all problems at once. Their texts are for a model, which gets one turn to fix
them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from handoff_queue.shared.text.word_forms import suggest_name
from handoff_queue.shared.types.condition_syntax import find_problem
from handoff_queue.shared.types.handoff import list_own_dependencies
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.names import FACT_GATE, ROLES
from handoff_queue.shared.types.step import AFTER_REVIEW, Join, Step


def find_join_problems(join: Join | None, waits_for: Sequence[StepId]) -> list[str]:
    """Return the faults of a join, each in one clause."""
    if join is None:
        return []
    if not waits_for:
        return ["needs a dependency: add the step's depends_on, or leave the join out"]
    problems: list[str] = []
    limit = max(join.enough or 1, join.at_least)
    if limit > len(waits_for):
        problems.append(f"needs {limit} results of {len(waits_for)}: lower the number")
    if join.enough and join.at_least > join.enough:
        problems.append(
            f"has `enough` {join.enough} below `at_least` {join.at_least}: raise `enough`, or lower"
            " `at_least`"
        )
    others = ", ".join(waits_for)
    for required in join.must:
        if required not in waits_for:
            problems.append(f"must have {required}, which is not one of its steps ({others:.300})")
    return problems


def count_problems(steps: Sequence[Step], max_steps: int) -> list[str]:
    """Return a problem if there are more steps than the job may have. The steps need not be a
    valid plan, so that a planner gets all problems in one turn.
    """
    if len(steps) > max_steps:
        return [f"{len(steps)} steps, at most {max_steps} are allowed: merge or drop some"]
    return []


def find_name_problems(steps: Sequence[Step], specialists: Collection[str]) -> list[str]:
    """Return a problem for each specialist that no worker serves."""
    served = sorted(specialists)
    problems: list[str] = []
    for step in steps:
        if step.specialist not in specialists:
            problems.append(
                f"step {step.id}: there is no specialist {step.specialist}; "
                f"{suggest_name(step.specialist, served)}"
            )
    return problems


def shape_problems(steps: Sequence[Step], given_steps: Collection[StepId] = ()) -> list[str]:
    """Return the problems of these steps as a plan, each in one clause.

    Args:
        given_steps: ids of results that the job has from the beginning.
    """
    return [problem.text for problem in find_problems_by_step(steps, given_steps)]


class StepProblem(NamedTuple):
    """A problem that a step has or causes."""

    step: StepId
    text: str
    """The problem in one clause."""


def find_problems_by_step(
    steps: Sequence[Step], given_steps: Collection[StepId] = (), unread: Collection[str] = ()
) -> list[StepProblem]:
    """Return the problems of `shape_problems`, each with its step.

    Args:
        given_steps: ids of results that the job has from the beginning.
        unread: ids of steps of the plan that cannot be read. Other steps may depend on them.
    """
    counts: Counter[StepId] = Counter()
    for step in steps:
        counts[step.id] += 1
    problems: list[StepProblem] = []
    for step_id in counts:
        if step_id in given_steps:
            text = (
                f"step id {step_id} is the name of a result that is there already: choose another"
            )
            problems.append(StepProblem(step_id, text))
    for step_id, count in counts.items():
        if count > 1:
            problems.append(StepProblem(step_id, f"step id {step_id} is used {count} times"))
    known = {*counts, *given_steps, *unread}
    for step in steps:
        for text in _find_step_problems(step, known, given_steps):
            problems.append(StepProblem(step.id, text))
    for cycle in _find_cycles(steps):
        text = f"cycle: {' -> '.join(cycle)} (each waits for the one before it)"
        problems.append(StepProblem(cycle[0], text))
    return problems + _find_missing_review_problems(steps)


def _find_step_problems(
    step: Step, known: Collection[str], given_steps: Collection[StepId]
) -> Iterator[str]:
    """Yield the problems of one step.

    Args:
        known: ids of all steps and given results.
    """
    if step.id in ROLES:
        yield f"step id {step.id} is the name of one of the supervisor's roles: choose another"
    if step.id == FACT_GATE:
        yield f"step id {step.id} is the name of a check of the answer: choose another"
    for unknown in dict.fromkeys(step.depends_on):
        if unknown not in known:
            yield f"step {step.id} depends on {unknown}, which is not a step"
    if len(set(step.depends_on)) != len(step.depends_on):
        yield f"step {step.id} names a dependency twice"
    for problem in find_join_problems(
        step.join, list_own_dependencies(step.depends_on, given_steps)
    ):
        yield f"the join of step {step.id} {problem}"
    if step.when is not None:
        problem_of_condition = find_problem(step.when)
        if problem_of_condition:
            yield f"the condition of step {step.id}: {problem_of_condition}"
        for name in step.when.steps.values():
            if name not in step.depends_on:
                yield f"the condition of step {step.id} names {name}, which it does not depend on"


def find_steps_after_review(steps: Sequence[Step]) -> set[StepId]:
    """Return the steps that begin after the review: those with `after: review`, and all steps
    that depend on them.
    """
    after_review: set[StepId] = set()
    for step in steps:
        if step.after == AFTER_REVIEW:
            after_review.add(step.id)
    has_grown = bool(after_review)
    while has_grown:
        size_before = len(after_review)
        for step in steps:
            if not after_review.isdisjoint(step.depends_on):
                after_review.add(step.id)
        has_grown = len(after_review) > size_before
    return after_review


def _find_missing_review_problems(steps: Sequence[Step]) -> list[StepProblem]:
    """Return a problem if a step waits for the review, and all steps begin after the review."""
    first = None
    for step in steps:
        if step.after == AFTER_REVIEW:
            first = step.id
            break
    if first is None or len(find_steps_after_review(steps)) < len(steps):
        return []
    problem = f"step {first} waits for the review, and no step is reviewed before it"
    return [StepProblem(first, problem)]


def find_last_join_problems(steps: Sequence[Step], join: Join | None) -> list[str]:
    """Return the problems of the join of the plan, which is over its sinks."""
    dependencies: set[StepId] = set()
    for step in steps:
        dependencies.update(step.depends_on)
    sinks = [step.id for step in steps if step.id not in dependencies]
    problems: list[str] = []
    for problem in find_join_problems(join, sinks):
        problems.append(f"the plan's join {problem}")
    return problems


def _have_dependencies_first(steps: Sequence[Step]) -> bool:
    """Return whether each step follows its dependencies, as in most plans. Such steps have no
    cycle. A step id that is used twice could hide one.
    """
    not_seen = {step.id for step in steps}
    if len(not_seen) < len(steps):
        return False
    for step in steps:
        if not not_seen.isdisjoint(step.depends_on):
            return False
        not_seen.remove(step.id)
    return True


def _find_cycles(steps: Sequence[Step]) -> list[list[StepId]]:
    """Return cycles that have no step in common, each as `a, b, a` (a before b before a). The
    steps of a cycle are removed before the search continues.
    """
    if _have_dependencies_first(steps):
        return []
    graph: dict[StepId, set[StepId]] = {}
    for step in steps:
        if step.depends_on:
            graph[step.id] = set(step.depends_on)
    cycles: list[list[StepId]] = []
    while graph:
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            cycle: list[StepId] = error.args[1]
            cycles.append(cycle)
            for step_id in set(cycle):
                graph.pop(step_id, None)
            for dependencies in graph.values():
                dependencies.difference_update(cycle)
        else:
            break
    return cycles
