"""The plan of a job, and patches to the plan."""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import Annotated, Self

from pydantic import (
    Field,
    StringConstraints,
    model_validator,
)

from handoff_queue.shared.types.handoff import list_own_dependencies
from handoff_queue.shared.types.ids import StepId, StepIdField
from handoff_queue.shared.types.message import Message
from handoff_queue.shared.types.plan_validation import find_last_join_problems, shape_problems
from handoff_queue.shared.types.step import Join, Step

MAX_PLAN_WHY_CHARS = 2_000
"""Most characters of the reason for a plan, a patch or a route."""


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
    why: Annotated[str, StringConstraints(max_length=MAX_PLAN_WHY_CHARS)] = ""
    """The reason for a plan that code has made, for readers of the plan."""

    @model_validator(mode="after")
    def _validate_graph(self) -> Self:
        problems = [
            *shape_problems(self.steps, self.given),
            *find_last_join_problems(self.steps, self.join),
        ]
        if problems:
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
            for dependency in list_own_dependencies(step.depends_on, self.given):
                ids[dependency].append(step.id)
        dependents: dict[StepId, tuple[StepId, ...]] = {}
        for step_id, dependent_ids in ids.items():
            dependents[step_id] = tuple(dependent_ids)
        return dependents

    @cached_property
    def steps_with_read_confidence(self) -> frozenset[StepId]:
        """Return the steps whose confidence a condition reads."""
        step_ids: set[StepId] = set()
        for step in self.steps:
            if step.when and "confidence" in step.when.text:
                step_ids.update(step.when.steps.values())
        return frozenset(step_ids)

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
