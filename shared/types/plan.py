"""The plan of a job: its steps, their joins, and patches to the plan.

Checks return all problems at once. Their texts are for a model, which gets one turn to fix
them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Final, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PositiveInt,
    StringConstraints,
    model_validator,
)

from handoff_queue.shared.text.durations import whole_seconds_in
from handoff_queue.shared.text.word_forms import suggestion
from handoff_queue.shared.types.condition import When, problem_with
from handoff_queue.shared.types.handoff import DEFAULT_FALLBACK, Text, own
from handoff_queue.shared.types.ids import NameField, StepId, StepIdField
from handoff_queue.shared.types.message import Message, OmitNone
from handoff_queue.shared.types.names import FACT_GATE, ROLES

MOST_RESULTS = 1_000_000
"""Bound of the numbers of a join. No plan has as many steps."""
MOST_WITHIN_S = 30 * 86_400
"""Bound of a join's `within_s`: 30 days."""


def _typed(value: object) -> object:
    """Return the number in a text of digits, and any other value unchanged. A plan that a
    person has edited has texts instead of numbers.
    """
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return value


_Count = Annotated[int, Field(ge=1, le=MOST_RESULTS), BeforeValidator(_typed)]


class Join(Message):
    """The results that a step needs before it begins, if it does not need all. Dependencies
    that have not ended by then are abandoned.
    """

    enough: _Count | None = None
    """Number of usable results with which the step begins at once; None: all."""
    at_least: _Count = 1
    """Least number of usable results. If fewer are possible, the step is abandoned."""
    within_s: (
        Annotated[int, Field(ge=1, le=MOST_WITHIN_S), BeforeValidator(whole_seconds_in)] | None
    ) = None
    """Seconds, counted from the start of the first dependency. After this time the step begins
    with the results that exist.
    """
    must: tuple[StepIdField, ...] = ()
    """Dependencies that the step waits for without a time limit. If one fails, the step is
    abandoned.
    """


def join_problems(join: Join | None, waits_for: Sequence[StepId]) -> list[str]:
    """Return the faults of a join, each in one clause."""
    if join is None:
        return []
    if not waits_for:
        return ["needs a dependency: add the step's depends_on, or leave the join out"]
    problems: list[str] = []
    most = max(join.enough or 1, join.at_least)
    if most > len(waits_for):
        problems.append(f"needs {most} results of {len(waits_for)}: lower the number")
    if join.enough and join.at_least > join.enough:
        problems.append(
            f"has `enough` {join.enough} below `at_least` {join.at_least}: raise `enough`, or lower"
            " `at_least`"
        )
    known, others = set(waits_for), ", ".join(waits_for)
    for required in join.must:
        if required not in known:
            problems.append(f"must have {required}, which is not one of its steps ({others:.300})")
    return problems


HIDDEN_TITLE = "(encrypted)"
"""The title of jobs and steps of a tenant whose texts are encrypted."""
TITLE_CHARS = 80
"""Characters of the longest title of a job or a step: one line of a terminal."""


AFTER_REVIEW: Final = "review"
"""Value of `Step.after`."""


class OnFailure(StrEnum):
    """Action after the specialist of a step has failed."""

    DROP = "drop"
    """The job continues without the step, and the answer names the gap."""
    RETRY = "retry"
    """Try again with the error in the context, then another specialist of the same capability,
    then the generalist. Then drop the step.
    """
    ASK = "ask"
    """Like `retry`, but ask a person before the step is dropped."""


def _on_one_line(title: str) -> str:
    """Return the title. Raise ValueError if it is blank or has line breaks."""
    if len(title.splitlines()) != 1 or not title.strip():
        raise ValueError("must be one line with at least one visible character")
    return title


Title = Annotated[
    str, StringConstraints(min_length=1, max_length=TITLE_CHARS), AfterValidator(_on_one_line)
]


class ItemRef(Message):
    """The item of one copy of a repeated step."""

    step: str
    """Name of the repeated step in the workflow."""
    each: str
    """Kind of the items: `files`, `lines` or `rows`."""
    n: Annotated[PositiveInt, Field(strict=False)]
    """Place of the item, from 1."""
    key: str
    """Name of the item: its field in the key column, its path or line, or its number."""


class Step(Message):
    """A piece of work for one specialist. It becomes an AgentHandoff when all steps in
    `depends_on` are done.
    """

    id: StepIdField
    specialist: NameField
    task: Text
    """The whole task for the specialist, apart from the results of `depends_on`: objective,
    output, boundaries.
    """
    depends_on: tuple[StepIdField, ...] = ()
    fallback: Annotated[str, StringConstraints(min_length=1, max_length=4_000)] = DEFAULT_FALLBACK
    """Instruction for a task that cannot be done as stated."""
    on_failure: OnFailure = OnFailure.DROP
    """Action after the specialist has failed. The default is for plans of versions without
    this field.
    """
    after: Annotated[Literal["review"] | None, OmitNone] = None
    """`review`: the step begins when a review has passed the results of the steps before it."""
    approve: Annotated[bool | None, OmitNone, Field(strict=False)] = None
    """True if a person must approve before the step begins."""
    when: Annotated[When | None, OmitNone] = None
    """Condition on which the step begins; None: it begins in any case."""
    row: Annotated[ItemRef | None, OmitNone] = None
    """Item of a repeated step; None for other steps."""
    contract_of: Annotated[NameField | None, OmitNone] = None
    """The specialist that the step was first planned for; None: `specialist`. Another
    specialist that does the step uses the output schema and the limits of the first one.
    """
    join: Join | None = None
    """Results of `depends_on` that the step needs. None: the step begins when all have ended,
    and at least one has a usable result.
    """
    title: Annotated[Title | None, OmitNone] = None
    """Heading of the step's result in a merged answer; None: the step id."""


class Synthesis(StrEnum):
    """Method to make one answer from the results of several sinks."""

    MERGE = "merge"
    """Independent sections, one after the other: no model call."""
    RECONCILE = "reconcile"
    """Results on the same question must be weighed against each other: one synthesizer call."""


class Plan(Message):
    """A DAG of steps. Validation ensures unique ids, known dependencies and no cycle, and so
    at least one sink.
    """

    steps: Annotated[tuple[Step, ...], Field(min_length=1)]
    synthesis: Synthesis = Synthesis.MERGE
    """Method to make the answer, if there is more than one sink."""
    join: Join | None = None
    """Results of the sinks that the answer needs; None: all sinks have ended."""
    given: tuple[StepIdField, ...] = ()
    """Results that the job has from the beginning, and that steps may depend on."""
    why: Annotated[str, StringConstraints(max_length=2_000)] = ""
    """The planner's reason, for readers of the plan."""

    @model_validator(mode="after")
    def _is_a_dag(self) -> Self:
        if problems := [
            *shape_problems(self.steps, self.given),
            *last_join_problems(self.steps, self.join),
        ]:
            raise ValueError("; ".join(problems))
        return self

    @cached_property
    def by_id(self) -> dict[StepId, Step]:
        """Return the steps by id."""
        steps: dict[StepId, Step] = {}
        for step in self.steps:
            steps[step.id] = step
        return steps

    @cached_property
    def dependents(self) -> dict[StepId, tuple[StepId, ...]]:
        """Return the direct dependents of each step, in the plan's order."""
        ids: dict[StepId, list[StepId]] = {}
        for step in self.steps:
            ids[step.id] = []
        for step in self.steps:
            for dependency in own(step.depends_on, self.given):
                ids[dependency].append(step.id)
        dependents: dict[StepId, tuple[StepId, ...]] = {}
        for step_id, dependent_ids in ids.items():
            dependents[step_id] = tuple(dependent_ids)
        return dependents

    @cached_property
    def sinks(self) -> tuple[StepId, ...]:
        """Return the steps without dependents, in the plan's order. The answer is made from
        their results.
        """
        sinks: list[StepId] = []
        for step in self.steps:
            if not self.dependents[step.id]:
                sinks.append(step.id)
        return tuple(sinks)


def count_problems(steps: Sequence[Step], max_steps: int) -> list[str]:
    """Return a problem if there are more steps than the job may have. The steps need not be a
    valid plan, so that a planner gets all problems in one turn.
    """
    if len(steps) > max_steps:
        return [f"{len(steps)} steps, at most {max_steps} are allowed: merge or drop some"]
    return []


def name_problems(steps: Sequence[Step], specialists: Collection[str]) -> list[str]:
    """Return a problem for each specialist that no worker serves."""
    served = sorted(specialists)
    problems: list[str] = []
    for step in steps:
        if step.specialist not in specialists:
            problems.append(
                f"step {step.id}: there is no specialist {step.specialist}; "
                f"{suggestion(step.specialist, served)}"
            )
    return problems


def shape_problems(steps: Sequence[Step], given: Collection[StepId] = ()) -> list[str]:
    """Return the problems of these steps as a plan, each in one clause.

    Args:
        given: ids of results that the job has from the beginning.
    """
    return [problem.text for problem in problems_by_step(steps, given)]


class StepProblem(NamedTuple):
    """A problem that a step has or causes."""

    step: StepId
    text: str
    """The problem in one clause."""


def problems_by_step(
    steps: Sequence[Step], given: Collection[StepId] = (), unread: Collection[str] = ()
) -> list[StepProblem]:
    """Return the problems of `shape_problems`, each with its step.

    Args:
        given: ids of results that the job has from the beginning.
        unread: ids of steps of the plan that cannot be read. Other steps may depend on them.
    """
    counts: Counter[StepId] = Counter()
    for step in steps:
        counts[step.id] += 1
    problems: list[StepProblem] = []
    for step_id in counts:
        if step_id in given:
            text = (
                f"step id {step_id} is the name of a result that is there already: choose another"
            )
            problems.append(StepProblem(step_id, text))
    for step_id, count in counts.items():
        if count > 1:
            problems.append(StepProblem(step_id, f"step id {step_id} is used {count} times"))
    known = {*counts, *given, *unread}
    for step in steps:
        for text in _of_one_step(step, known, given):
            problems.append(StepProblem(step.id, text))
    for cycle in _cycles(steps):
        text = f"cycle: {' -> '.join(cycle)} (each waits for the one before it)"
        problems.append(StepProblem(cycle[0], text))
    return problems + _nothing_to_review(steps)


def _of_one_step(step: Step, known: Collection[str], given: Collection[StepId]) -> Iterator[str]:
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
    for problem in join_problems(step.join, own(step.depends_on, given)):
        yield f"the join of step {step.id} {problem}"
    if step.when is not None:
        if wrong := problem_with(step.when):
            yield f"the condition of step {step.id}: {wrong}"
        for name in step.when.steps.values():
            if name not in step.depends_on:
                yield f"the condition of step {step.id} names {name}, which it does not depend on"


def after_review_in(steps: Sequence[Step]) -> set[StepId]:
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


def _nothing_to_review(steps: Sequence[Step]) -> list[StepProblem]:
    """Return a problem if a step waits for the review, and all steps begin after the review."""
    first = None
    for step in steps:
        if step.after == AFTER_REVIEW:
            first = step.id
            break
    if first is None or len(after_review_in(steps)) < len(steps):
        return []
    problem = f"step {first} waits for the review, and no step is reviewed before it"
    return [StepProblem(first, problem)]


def last_join_problems(steps: Sequence[Step], join: Join | None) -> list[str]:
    """Return the problems of the join of the plan, which is over its sinks."""
    dependencies: set[StepId] = set()
    for step in steps:
        dependencies.update(step.depends_on)
    sinks = [step.id for step in steps if step.id not in dependencies]
    problems: list[str] = []
    for problem in join_problems(join, sinks):
        problems.append(f"the plan's join {problem}")
    return problems


def _cycles(steps: Sequence[Step]) -> list[list[StepId]]:
    """Return cycles that have no step in common, each as `a, b, a` (a before b before a). The
    steps of a cycle are removed before the search continues.
    """
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


class Repeat(Message):
    """A proposed step that repeats the task of an earlier step in other words. It does not run."""

    step: StepIdField
    """Id of the proposed step."""
    earlier: StepIdField
    """The earlier step with the same task."""


class Patch(Message):
    """The replanner's changes. The plan stays as it is if all fields are empty."""

    add: tuple[Step, ...] = ()
    change: tuple[Step, ...] = ()
    """The changed steps in their new form."""
    drop: tuple[StepIdField, ...] = ()
    finalize: bool = False
    """True if no further step begins, and the answer is made from the results so far."""
    repeats: tuple[Repeat, ...] = ()
    """Proposed steps that repeat earlier ones and are not in `add`, because the replanner
    proposed them again after a remark.
    """
    why: str = ""
    """Reason, for readers of the plan."""


class Resolution(Message):
    """Resolution of one step's question. Without `answer` and `by` the step is abandoned."""

    step: StepIdField
    answer: str | None = None
    by: Step | None = None
    """A new step that finds the answer. Several questions may have the same step."""


class Resolutions(Message):
    """A resolution for each step with a question, in the order of the questions."""

    resolutions: tuple[Resolution, ...]
