"""A job of a run as the workflow that its user would write. Pure."""

from __future__ import annotations

from pathlib import Path

from handoff_queue.chaos.answers import task_of
from handoff_queue.chaos.plan import PlannedJob, PlannedStep
from handoff_queue.chaos.shapes import Shape
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.plan import OnFailure, Synthesis
from handoff_queue.supervisor.workflows import Items, Workflow
from handoff_queue.supervisor.workflows.join_syntax import Share, WrittenJoin
from handoff_queue.supervisor.workflows.template import Template
from handoff_queue.supervisor.workflows.workflow import Each, WorkflowStep

REPEATED = "do"
"""The step that is there for each line."""
WHERE = "chaos"


def workflow_of(job: PlannedJob) -> tuple[Workflow, Items]:
    """And the lines that a step of it is done for."""
    is_repeated = job.shape is Shape.REPEATED
    copies = [step for step in job.steps if is_repeated and step.id.startswith(f"{REPEATED}_")]
    written = [
        step for step in job.steps if step not in copies and step.is_there_from_the_beginning
    ]
    steps = [_step(job, step, (REPEATED,) if copies else step.after) for step in written]
    if copies:
        steps.insert(0, _for_each_line(copies[0]))
    synthesis = Synthesis.RECONCILE if job.shape is Shape.WRITTEN else Synthesis.MERGE
    workflow = Workflow(
        WHERE,
        Path(WHERE),
        "As planned.",
        review=True,
        synthesis=synthesis,
        join=None,
        steps=tuple(steps),
    )
    return workflow, Items(lines=tuple(f"{step.id} of {job.name}" for step in copies))


def _step(job: PlannedJob, step: PlannedStep, after: tuple[str, ...]) -> WorkflowStep:
    return WorkflowStep(
        id=StepId(step.id),
        specialist=step.specialist,
        task=Template.of(task_of(job, step)),
        fallback=Template.of("-"),
        depends_on=tuple(map(StepId, after)),
        for_each=None,
        on_failure=OnFailure.RETRY,
        join=WrittenJoin(WHERE, enough=Share(step.enough)) if step.enough else None,
        where=WHERE,
    )


def _for_each_line(step: PlannedStep) -> WorkflowStep:
    task, id_ = Template.of("Do {item}."), StepId(REPEATED)
    return WorkflowStep(
        id_, step.specialist, task, Template.of("-"), (), Each.LINES, OnFailure.RETRY, None, WHERE
    )
