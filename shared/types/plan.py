"""The plan of a job: its steps, their joins, and patches to the plan.

Problems are found all at once and worded for a model: it gets one turn to mend them.
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
from handoff_queue.shared.text.words import suggestion
from handoff_queue.shared.types.condition import When
from handoff_queue.shared.types.condition import problem_with as when_problem
from handoff_queue.shared.types.handoff import Text, own
from handoff_queue.shared.types.ids import NameField, StepId, StepIdField
from handoff_queue.shared.types.message import Message, Unsaid
from handoff_queue.shared.types.names import FACT_GATE, ROLES

MOST_RESULTS = 1_000_000
"""Larger than the number of steps of any plan."""
MOST_WITHIN_S = 30 * 86_400
"""Longer than jobs are kept: a job's own time ends it before."""


def _typed(value: object) -> object:
    """Convert a text to a number. A plan that a person has edited holds texts."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return value


_Count = Annotated[int, Field(ge=1, le=MOST_RESULTS), BeforeValidator(_typed)]


class Join(Message):
    """The results that a step needs before it begins, if it does not need all. Dependencies that
    are late then are abandoned.
    """

    enough: _Count | None = None
    """Number of usable results that start the step at once. None: all."""
    at_least: _Count = 1
    """Least number of usable results. If fewer are possible, the step is abandoned."""
    within_s: (
        Annotated[int, Field(ge=1, le=MOST_WITHIN_S), BeforeValidator(whole_seconds_in)] | None
    ) = None
    """Seconds, counted from the start of the first dependency. After this time the step begins with
    the results that exist.
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
        return ["waits for nothing: give the step something to depend on, or leave the join out"]
    most = max(join.enough or 1, join.at_least)
    if most > len(waits_for):
        problems = [f"needs {most} results of {len(waits_for)}: ask for fewer"]
    else:
        problems = []
    if join.enough and join.at_least > join.enough:
        problems.append(
            f"has enough with {join.enough} and needs at least {join.at_least}: the two contradict each other"
        )
    known, others = set(waits_for), ", ".join(waits_for)
    return problems + [
        f"must have {required}, which it does not wait for (it does for {others:.300})"
        for required in join.must
        if required not in known
    ]


TITLE_CHARS = 80
"""The longest title of a job or a step: one line of a terminal."""
DEFAULT_FALLBACK = "Say exactly what is missing, and give what you have."


AFTER_REVIEW: Final = "review"


class OnFailure(StrEnum):
    """Action after the specialist of a step has failed."""

    DROP = "drop"
    """The job goes on without it, and its gap is named."""
    RETRY = "retry"
    """Try again with the error in the context, then another specialist of the same capability, then
    the generalist. Then drop the step.
    """
    ASK = "ask"
    """Like `retry`, but ask a person before the step is dropped."""


def _on_one_line(title: str) -> str:
    """Return the title. Raises: ValueError: it is blank, or has line breaks."""
    if len(title.splitlines()) != 1 or not title.strip():
        raise ValueError("must be one line with at least one visible character")
    return title


Title = Annotated[
    str, StringConstraints(min_length=1, max_length=TITLE_CHARS), AfterValidator(_on_one_line)
]


class ItemRef(Message):
    """The item that a copy of a repeated step is for."""

    step: str
    """The repeated step, as the workflow names it."""
    each: str
    """`files`, `lines` or `rows`."""
    n: Annotated[PositiveInt, Field(strict=False)]
    """The item's place, from 1."""
    key: str
    """The item's own name: its field in the key column, its path or line, or its number."""


class Step(Message):
    """A piece of work for one specialist. It becomes an AgentHandoff when all steps in `depends_on`
    are done.
    """

    id: StepIdField
    specialist: NameField
    task: Text
    """The whole task for the specialist, apart from the results of `depends_on`: objective, output,
    boundaries.
    """
    depends_on: tuple[StepIdField, ...] = ()
    fallback: Annotated[str, StringConstraints(min_length=1, max_length=4_000)] = DEFAULT_FALLBACK
    """Instruction for a task that cannot be done as stated."""
    on_failure: OnFailure = OnFailure.DROP
    """Plans from before there was a choice say nothing, and mean this."""
    after: Annotated[Literal["review"] | None, Unsaid] = None
    """`review`: the step begins when a review has passed the results of the steps before it."""
    approve: Annotated[bool | None, Unsaid, Field(strict=False)] = None
    """True if a person must approve before the step begins."""
    when: Annotated[When | None, Unsaid] = None
    """The condition on which the step begins. None: it begins in any case."""
    row: Annotated[ItemRef | None, Unsaid] = None
    """Item of a repeated step; None for other steps."""
    contract_of: Annotated[NameField | None, Unsaid] = None
    """The specialist that the step was first planned for. Any other specialist that does the step
    answers in that specialist's output schema, within its limits. None: `specialist` itself.
    """
    join: Join | None = None
    """Results of `depends_on` that the step needs. None: all have ended, and at least one has a
    usable result.
    """
    title: Annotated[Title | None, Unsaid] = None
    """The heading of the step's result in a merged answer; None: the step id."""


class Synthesis(StrEnum):
    """Method to make one answer of the results of several sinks."""

    MERGE = "merge"
    """Independent sections, one after the other: no model call."""
    RECONCILE = "reconcile"
    """Results on the same question must be weighed against each other: one synthesizer call."""


class Plan(Message):
    """A DAG of steps. A plan that exists is sound: unique ids, known dependencies, no cycle,
    therefore at least one sink.
    """

    steps: Annotated[tuple[Step, ...], Field(min_length=1)]
    synthesis: Synthesis = Synthesis.MERGE
    """Matters only when there is more than one sink."""
    join: Join | None = None
    """Results of the sinks that the answer needs; None: all have ended."""
    given: tuple[StepIdField, ...] = ()
    """Results that are there from the beginning, and that steps may depend on."""
    why: Annotated[str, StringConstraints(max_length=2_000)] = ""
    """The planner's reason, for people who look at the plan."""

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
        steps: dict[StepId, Step] = {}
        for step in self.steps:
            steps[step.id] = step
        return steps

    @cached_property
    def dependents(self) -> dict[StepId, tuple[StepId, ...]]:
        """Return the dependents of each step, in the plan's order."""
        waiting: dict[StepId, list[StepId]] = {step.id: [] for step in self.steps}
        for step in self.steps:
            for dependency in own(step.depends_on, self.given):
                waiting[dependency].append(step.id)
        dependents: dict[StepId, tuple[StepId, ...]] = {}
        for step_id, ids in waiting.items():
            dependents[step_id] = tuple(ids)
        return dependents

    @cached_property
    def sinks(self) -> tuple[StepId, ...]:
        """The steps that nothing waits for, in the plan's order: their results are the answer."""
        sinks: list[StepId] = []
        for step in self.steps:
            if not self.dependents[step.id]:
                sinks.append(step.id)
        return tuple(sinks)


def count_problems(steps: Sequence[Step], max_steps: int) -> list[str]:
    """Return a problem if there are more steps than the job may have. The steps need not be a valid
    plan, so that a planner gets all problems in one turn.
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
    """Return every problem that keeps these steps from being a DAG, each in one clause.

    Args:
        given: ids of results that exist already.
    """
    return [problem.said for problem in problems_by_step(steps, given)]


class StepProblem(NamedTuple):
    """A problem that a step has or causes."""

    step: StepId
    said: str


def problems_by_step(steps: Sequence[Step], given: Collection[StepId] = ()) -> list[StepProblem]:
    """Return the same problems, each with its step."""
    known = Counter(step.id for step in steps)
    taken = [
        (
            step_id,
            f"step id {step_id} is the name of a result that is there already: choose another",
        )
        for step_id in known
        if step_id in given
    ]
    problems = [
        *taken,
        *(
            (step_id, f"step id {step_id} is used {count} times")
            for step_id, count in known.items()
            if count > 1
        ),
    ]
    there = {*known, *given}
    problems += [(step.id, text) for step in steps for text in _of_one_step(step, there, given)]
    for cycle in _cycles(steps):
        problems.append(
            (cycle[0], f"cycle: {' -> '.join(cycle)} (each waits for the one before it)")
        )
    return [*(StepProblem(*problem) for problem in problems), *_nothing_to_review(steps)]


def _of_one_step(step: Step, there: Collection[StepId], given: Collection[StepId]) -> Iterator[str]:
    if step.id in ROLES:
        yield f"step id {step.id} is the name of one of the supervisor's roles: choose another"
    if step.id == FACT_GATE:
        yield f"step id {step.id} is the name of a check of the answer: choose another"
    for unknown in dict.fromkeys(step.depends_on):
        if unknown not in there:
            yield f"step {step.id} depends on {unknown}, which is not a step"
    if len(set(step.depends_on)) != len(step.depends_on):
        yield f"step {step.id} names a dependency twice"
    for problem in join_problems(step.join, own(step.depends_on, given)):
        yield f"the join of step {step.id} {problem}"
    if step.when is not None:
        if wrong := when_problem(step.when):
            yield f"the condition of step {step.id}: {wrong}"
        for name in step.when.steps.values():
            if name not in step.depends_on:
                yield f"the condition of step {step.id} names {name}, which it does not depend on"


def after_review_in(steps: Sequence[Step]) -> set[StepId]:
    """Return the steps that begin after the review: the steps that say so, and their dependents."""
    after_review = {step.id for step in steps if step.after == AFTER_REVIEW}
    grown = bool(after_review)
    while grown:
        later = {step.id for step in steps if not after_review.isdisjoint(step.depends_on)}
        grown = not later <= after_review
        after_review |= later
    return after_review


def _nothing_to_review(steps: Sequence[Step]) -> list[StepProblem]:
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
    """Return the problems of the join of the answer over the sinks."""
    built_upon = {dependency for step in steps for dependency in step.depends_on}
    problems: list[str] = []
    for problem in join_problems(join, [step.id for step in steps if step.id not in built_upon]):
        problems.append(f"the plan's join {problem}")
    return problems


def _cycles(steps: Sequence[Step]) -> list[list[StepId]]:
    """Return cycles without a common step, each as `a, b, a` (a before b before a). A found cycle
    is broken before the search continues.
    """
    graph = {}
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
            graph = {
                step_id: waits_for - set(cycle)
                for step_id, waits_for in graph.items()
                if step_id not in cycle
            }
        else:
            break
    return cycles


class Repeat(Message):
    """A requested step that repeats earlier work in other words. It does not run."""

    step: StepIdField
    """Proposed id of the step."""
    earlier: StepIdField
    """The step that was asked for the same before."""


class Patch(Message):
    """The replanner's changes. The plan stays as it is if all fields are empty."""

    add: tuple[Step, ...] = ()
    change: tuple[Step, ...] = ()
    """The changed steps in their new form."""
    drop: tuple[StepIdField, ...] = ()
    finalize: bool = False
    """True if no further step begins: the answer is made from the results so far."""
    repeats: tuple[Repeat, ...] = ()
    """Left out of `add`, after the replanner was told."""
    why: str = ""
    """Reason, for readers of the plan."""


class Resolution(Message):
    """Resolution of one step's question. Without `answer` and `by` the step is abandoned."""

    step: StepIdField
    answer: str | None = None
    by: Step | None = None
    """A new step that finds it out; it may be the same for several."""


class Resolutions(Message):
    """A resolution for each step with a question, in the order of the questions."""

    resolutions: tuple[Resolution, ...]
