"""Draw random jobs: shapes, pipelines and their limits."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from handoff_queue.chaos.answers import task_of
from handoff_queue.chaos.plan import LATE_S, SPECIALISTS, PlannedJob, PlannedStep, Says
from handoff_queue.chaos.shapes import CHORDS, MODES, Shape, shapes_in
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.names import SUB_SUPERVISOR
from handoff_queue.shared.types.plan import OnFailure, Synthesis
from handoff_queue.supervisor.workflows import Items, Workflow
from handoff_queue.supervisor.workflows.template import Template
from handoff_queue.supervisor.workflows.workflow import ForEach, JoinSyntax, Share, WorkflowStep

REPEATED = "do"
"""The step that is there for each line."""
WHERE = "chaos"


def workflow_of(job: PlannedJob) -> tuple[Workflow, Items]:
    """Return the workflow of a job, and the lines that its step is repeated over."""
    is_repeated = job.shape is Shape.REPEATED
    copies = [step for step in job.steps if is_repeated and step.id.startswith(f"{REPEATED}_")]
    written = [
        step for step in job.steps if step not in copies and step.is_there_from_the_beginning
    ]
    steps = [_step(job, step, (REPEATED,) if copies else step.after) for step in written]
    if copies:
        steps.insert(0, _for_each_line(copies[0]))
    if job.shape is Shape.WRITTEN:
        synthesis = Synthesis.RECONCILE
    else:
        synthesis = Synthesis.MERGE
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
        join=JoinSyntax(WHERE, enough=Share(step.enough)) if step.enough else None,
        where=WHERE,
    )


def _for_each_line(step: PlannedStep) -> WorkflowStep:
    task, id_ = Template.of("Do {item}."), StepId(REPEATED)
    return WorkflowStep(
        id_,
        step.specialist,
        task,
        Template.of("-"),
        (),
        ForEach.LINES,
        OnFailure.RETRY,
        None,
        WHERE,
    )


NOT_ALL_ROUND = ("analyst", "writer")
"""Specialists for jobs in which the generalist replaces another specialist."""
TIGHT_SPECIALIST = "writer"
TIGHT_STEPS = "abcdefghjklm"
"""Names of tight steps, without i: the word says as little as a, and the planner would be told that
the steps repeat each other.
"""
LINES = 3
"""Lines that a step is repeated over."""


@dataclass(frozen=True, slots=True)
class Draw:
    """Kinds of jobs that a run draws from."""

    shapes: tuple[Shape, ...]
    modes: tuple[Mode, ...]


EVERYTHING = Draw(tuple(shapes_in(list(Mode))), tuple(Mode))
ONLY_CHORDS = Draw(CHORDS, (Mode.TEAM,))
"""Jobs for the control, and for a run of this system that is compared with it."""


def only(modes: Collection[Mode]) -> Draw:
    """Return all kinds of jobs that these modes allow."""
    return Draw(tuple(shapes_in(modes)), tuple(mode for mode in Mode if mode in modes))


def jobs_of(seed: int, count: int, first: int = 0, draw: Draw = EVERYTHING) -> list[PlannedJob]:
    """Return `count` jobs, every shape in turn, from the given number on."""
    shapes = list(draw.shapes)
    random.Random(f"{seed} shapes").shuffle(shapes)  # noqa: S311 - a seed is the point
    jobs: list[PlannedJob] = []
    for number in range(first, first + count):
        jobs.append(_job(seed, number, shapes[number % len(shapes)], draw))
    return jobs


def _job(seed: int, number: int, shape: Shape, draw: Draw) -> PlannedJob:
    modes = [mode for mode in MODES[shape] if mode in draw.modes]
    mode = random.Random(f"{seed} {number} mode").choice(modes)  # noqa: S311
    drawing, name = _Drawing(seed, random.Random(f"{seed} {number}")), f"{seed}-{number}"  # noqa: S311
    steps = drawing.steps(Shape.ALONE if mode is Mode.SINGLE else shape, name)
    return PlannedJob(
        name,
        shape,
        steps,
        seed,
        mode=mode,
        then=drawing.next_after(name) if shape is Shape.FOLLOWED else None,
    )


@dataclass(frozen=True, slots=True)
class _Drawing:
    seed: int
    dice: random.Random

    def step(self, id_: str, *after: str, turns: int = 1) -> PlannedStep:
        return PlannedStep(id_, self.dice.choice(SPECIALISTS), after, turns)

    def team(
        self,
        of: str,
        id_: str,
        shape: Shape,
        *steps: PlannedStep,
        takes_from: tuple[float, ...] | None = None,
    ) -> PlannedStep:
        """Return a step of the job `of` that is a child job."""
        name = f"{of}-{id_}"
        child = PlannedJob(name, shape, steps or self.steps(shape, name), self.seed, parent=of)
        if takes_from:
            child = PlannedJob(
                name, shape, child.steps, self.seed, parent=of, takes_from=takes_from
            )
        return PlannedStep(id_, SUB_SUPERVISOR, team=child)

    def next_after(self, name: str) -> PlannedJob:
        """Return the job that follows the job of this name."""
        shape, mode = self.dice.choice(((Shape.PARALLEL, Mode.TEAM), (Shape.ALONE, Mode.SINGLE)))
        name = f"{name}-then"
        return PlannedJob(name, shape, self.steps(shape, name), self.seed, mode=mode)

    def steps(self, shape: Shape, name: str) -> tuple[PlannedStep, ...]:
        if shape in CHORDS:
            return self._of_chords(shape)
        return self._of_trees(shape, name) or self._of_others(shape)

    def _of_chords(self, shape: Shape) -> tuple[PlannedStep, ...]:
        match shape:
            case Shape.DIAMOND:
                return (
                    self.step("a"),
                    self.step("b", "a"),
                    self.step("c", "a", turns=2),
                    self.step("d", "b", "c"),
                )
            case Shape.TOOLS:
                return (self.step("a", turns=3), self.step("b", turns=3))
            case Shape.TIGHT:
                return tuple(self.step(name) for name in TIGHT_STEPS)
            case (
                Shape.TIGHT_TOKENS | Shape.TIGHT_MONEY
            ):  # one specialist, whose worst case is known
                return tuple(PlannedStep(name, TIGHT_SPECIALIST) for name in TIGHT_STEPS)
            case Shape.WRITTEN:
                return (self.step("a"), self.step("b"))
            case _:
                return (self.step("a"), self.step("b"), self.step("c"))

    def _of_trees(self, shape: Shape, name: str) -> tuple[PlannedStep, ...]:
        """Return the steps that are child jobs; empty if the shape has none."""
        match shape:
            case Shape.JOINED:
                late = self.step("c", turns=3)
                if self.dice.random() < 0.5:
                    late = self.team(name, "c", Shape.DIAMOND, takes_from=(LATE_S,))
                parts = (self.step("a"), self.step("b"), late)
                return (
                    *parts,
                    PlannedStep("d", self.dice.choice(SPECIALISTS), ("a", "b", "c"), enough=2),
                )
            case Shape.TEAMS:
                below = [self.step("a"), self.step("b", "a")]
                if self.dice.random() < 0.5:
                    below.append(self.team(f"{name}-x", "y", Shape.WRITTEN))
                return (
                    self.team(name, "x", Shape.PARALLEL, *below),
                    self.step("a"),
                    self.step("w", "x", "a"),
                )
            case Shape.TIGHT_TREE:
                return (self.team(name, "x", Shape.TIGHT), self.team(name, "y", Shape.TIGHT))
            case Shape.CALLED_OFF:
                return (self.team(name, "x", shape, self.step("a"), self.step("b")), self.step("a"))
            case _:
                return ()

    def _of_others(self, shape: Shape) -> tuple[PlannedStep, ...]:
        match shape:
            case Shape.ALONE:
                steps = [self.step("answer", turns=self.dice.choice((1, 3)))]
            case Shape.REPEATED:
                lines: list[str] = []
                for number in range(1, LINES + 1):
                    lines.append(f"do_{number:04d}")
                specialist = self.dice.choice(SPECIALISTS)  # of all copies
                steps = [*(PlannedStep(line, specialist) for line in lines), self.step("w", *lines)]
            case Shape.NEEDY | Shape.HELPED:
                asks = PlannedStep(
                    "b", self.dice.choice(SPECIALISTS), attempts=(Says.NEEDS_INPUT, Says.OK)
                )
                helper = replace(self.step("b_help", turns=self.dice.choice((1, 3))), helps="b")
                steps = [
                    self.step("a"),
                    asks,
                    self.step("c", "b"),
                    *([helper] if shape is Shape.HELPED else []),
                ]
            case Shape.FAILING:
                fails = (Says.FAILED,) * self.dice.choice((1, 3))
                tried = PlannedStep(
                    "b", self.dice.choice(NOT_ALL_ROUND), attempts=(*fails, Says.OK)
                )
                steps = [self.step("a"), tried, self.step("c", "b")]
            case Shape.ADDED:
                steps = [
                    self.step("a"),
                    self.step("b"),
                    PlannedStep("e", self.dice.choice(SPECIALISTS), ("a",), is_added=True),
                ]
            case Shape.CHANGED:
                dropped = PlannedStep("d", self.dice.choice(SPECIALISTS), ("c",), is_dropped=True)
                steps = [self.step("a"), self.step("b", "a", turns=3), self.step("c", "b"), dropped]
            case _:
                steps = [self.step("a"), self.step("b")]
        return tuple(steps)
