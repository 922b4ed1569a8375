"""A workflow: the steps that a person wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

from handoff_queue.shared.types.condition_syntax import Condition
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.plan import Synthesis
from handoff_queue.shared.types.step import OnFailure
from handoff_queue.supervisor.gates.gates_file import GateSet
from handoff_queue.supervisor.workflows.join_syntax import JoinSyntax
from handoff_queue.supervisor.workflows.template import Template


class ForEach(StrEnum):
    """The kind of the items that a step is repeated over."""

    FILES = "files"
    LINES = "lines"
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class WorkflowStep:
    """A step as it was written. It becomes one Step of the plan, or a copy for each item."""

    id: StepId
    specialist: str
    task: Template
    fallback: Template
    depends_on: tuple[StepId, ...]
    for_each: ForEach | None
    on_failure: OnFailure
    join: JoinSyntax | None
    where: str
    """File, line and step, for errors."""
    when: Condition | None = None
    """The condition on which the step begins."""
    after: Literal["review"] | None = None
    """`review`: the step begins when a review has passed the results of the steps before it."""
    approve: bool | None = None
    """True if a person must approve before the step begins."""
    title: Template | None = None
    """The heading of the result in a merged answer."""

    @property
    def templates(self) -> tuple[Template, ...]:
        """The texts of the step that may hold placeholders."""
        if self.title:
            return (self.task, self.fallback, self.title)
        return (self.task, self.fallback)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all placeholders, each once."""
        names: dict[str, None] = {}
        for template in self.templates:
            names.update(dict.fromkeys(template.names))
        return tuple(names)


def index_steps(steps: Sequence[WorkflowStep]) -> dict[StepId, WorkflowStep]:
    """Return the steps by their ids. If steps have the same id, the last one counts."""
    return {step.id: step for step in steps}


@dataclass(frozen=True, slots=True)
class Workflow:
    """A workflow that `read_workflow` has parsed and checked."""

    name: str
    path: Path
    description: str
    review: bool
    """True if the assessor reviews the results."""
    synthesis: Synthesis
    join: JoinSyntax | None
    """Results of the last steps that the answer needs."""
    steps: tuple[WorkflowStep, ...]
    key: str | None = None
    """The column whose fields name the rows in the results. None: the rows have numbers."""
    gates: GateSet | None = None
    """Gates of the answers of its jobs, for requests without gates."""

    @property
    def repeats_over(self) -> frozenset[ForEach]:
        """The kinds of items that a job must provide."""
        return frozenset(step.for_each for step in self.steps if step.for_each)

    @property
    def specialists(self) -> tuple[str, ...]:
        """The names of its specialists, sorted."""
        return tuple(sorted({step.specialist for step in self.steps}))
