"""Random jobs of a seed, and the workflows of pipeline jobs."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from handoff_queue.chaos.job_shapes import CHORDS, FEATURES, MODES, Shape, list_shapes
from handoff_queue.chaos.model_answers import build_task
from handoff_queue.chaos.planned_jobs import (
    EXTERNAL,
    FINDS_AT,
    FORK_SUFFIX,
    KEEPER,
    LATE_S,
    SKIMMER,
    SPECIALISTS,
    SWITCHING,
    PlannedJob,
    PlannedOutcome,
    PlannedStep,
)
from handoff_queue.chaos.shortened_requests import SKIMMER_TURNS
from handoff_queue.shared.settings.agent_sdk_cli import find_agent_sdk_fault
from handoff_queue.shared.types.ids import StepId
from handoff_queue.shared.types.job_options import Mode
from handoff_queue.shared.types.names import CHILD_JOB_SPECIALIST
from handoff_queue.shared.types.plan import Synthesis
from handoff_queue.shared.types.step import OnFailure
from handoff_queue.supervisor.workflows import Items, Workflow
from handoff_queue.supervisor.workflows.join_syntax import JoinSyntax, Share
from handoff_queue.supervisor.workflows.template import Template
from handoff_queue.supervisor.workflows.workflow import ForEach, WorkflowStep

REPEATED = "do"
"""Step of the workflow that is repeated for each line."""
WORKFLOW_NAME = "chaos"
"""Name of the workflow, and of its file in error messages."""


def build_workflow(job: PlannedJob) -> tuple[Workflow, Items]:
    """Return the workflow of a job, and the lines for its repeated step."""
    copies: list[PlannedStep] = []
    steps: list[WorkflowStep] = []
    for step in job.first_steps:
        if job.shape is not Shape.REPEATED:
            steps.append(_build_step(job, step, step.after))
        elif step.id.startswith(f"{REPEATED}_"):
            copies.append(step)
        else:
            steps.append(_build_step(job, step, (REPEATED,)))
    if copies:
        steps.insert(0, _make_repeated_step(copies[0]))
    synthesis = Synthesis.MERGE
    if job.shape is Shape.WRITTEN:
        synthesis = Synthesis.RECONCILE
    workflow = Workflow(
        WORKFLOW_NAME,
        Path(WORKFLOW_NAME),
        "As planned.",
        review=True,
        synthesis=synthesis,
        join=None,
        steps=tuple(steps),
    )
    return workflow, Items(lines=tuple(f"{step.id} of {job.name}" for step in copies))


def _build_step(job: PlannedJob, step: PlannedStep, after: tuple[str, ...]) -> WorkflowStep:
    return WorkflowStep(
        id=StepId(step.id),
        specialist=step.specialist,
        task=Template.parse(build_task(job, step)),
        fallback=Template.parse("-"),
        depends_on=tuple(map(StepId, after)),
        for_each=None,
        on_failure=OnFailure.RETRY,
        join=JoinSyntax(WORKFLOW_NAME, enough=Share(step.enough)) if step.enough else None,
        where=WORKFLOW_NAME,
    )


def _make_repeated_step(step: PlannedStep) -> WorkflowStep:
    task, id_ = Template.parse("Do {item}."), StepId(REPEATED)
    return WorkflowStep(
        id_,
        step.specialist,
        task,
        Template.parse("-"),
        (),
        ForEach.LINES,
        OnFailure.RETRY,
        None,
        WORKFLOW_NAME,
    )


NOT_ALL_ROUND = ("analyst", "writer")
"""Specialists for jobs in which the generalist replaces another specialist."""
TIGHT_SPECIALIST = "writer"
TIGHT_STEPS = "abcdefghjklm"
"""Ids of the steps of a tight job, one letter each. The letter i is left out. Like a, it counts as
a word without meaning. The supervisor would reject the plan because two steps look the same.
"""
LINES = 3
"""Number of lines for a repeated step."""


@dataclass(frozen=True, slots=True)
class Draw:
    """Kinds of jobs that a run may draw."""

    shapes: tuple[Shape, ...]
    modes: tuple[Mode, ...]


EVERYTHING = Draw(tuple(list_shapes(list(Mode))), tuple(Mode))
ONLY_CHORDS = Draw(CHORDS, (Mode.TEAM,))
"""Jobs for the control, and for a run of this system that is compared with it."""
ONLY_FEATURES = Draw(FEATURES, tuple(Mode))


def without_missing_extras(draw: Draw) -> tuple[Draw, str]:
    """Return the kinds of jobs that the packages on this machine allow, and the reason why a shape
    is left out; "" if none is.
    """
    fault = find_agent_sdk_fault()
    if not fault or Shape.EXTERNAL not in draw.shapes:
        return draw, ""
    shapes = tuple(shape for shape in draw.shapes if shape is not Shape.EXTERNAL)
    return replace(draw, shapes=shapes), f"no jobs of the shape `{Shape.EXTERNAL}`: {fault}"


def only(modes: Collection[Mode]) -> Draw:
    """Return all kinds of jobs that these modes allow."""
    ordered_modes = [mode for mode in Mode if mode in modes]
    return Draw(tuple(list_shapes(modes)), tuple(ordered_modes))


def generate_jobs(
    seed: int, count: int, first: int = 0, draw: Draw = EVERYTHING
) -> list[PlannedJob]:
    """Return `count` jobs, every shape in turn.

    Args:
        first: number of the first job.
    """
    shapes = list(draw.shapes)
    random.Random(f"{seed} shapes").shuffle(shapes)  # noqa: S311 - a seed is the point
    jobs: list[PlannedJob] = []
    for number in range(first, first + count):
        jobs.append(_generate_job(seed, number, shapes[number % len(shapes)], draw))
    return jobs


def _generate_job(seed: int, number: int, shape: Shape, draw: Draw) -> PlannedJob:
    modes = []
    for mode in MODES[shape]:
        if mode in draw.modes:
            modes.append(mode)
    mode = random.Random(f"{seed} {number} mode").choice(modes)  # noqa: S311
    name = f"{seed}-{number}"
    generator = _StepGenerator(seed, random.Random(f"{seed} {number}"))  # noqa: S311
    steps = generator.draw_steps(Shape.ALONE if mode is Mode.SINGLE else shape, name)
    then = None
    if shape is Shape.FOLLOWED:
        then = generator.draw_next_job(name)
    if shape is Shape.REMEMBERED:
        then = generator.draw_finder(name)
    if shape is Shape.FORKED:
        then = generator.draw_fork(name, steps[-1])
    return PlannedJob(name, shape, steps, seed, mode=mode, then=then)


@dataclass(frozen=True, slots=True)
class _StepGenerator:
    """Draws the steps of one job."""

    seed: int
    dice: random.Random

    def draw_step(self, id_: str, *after: str, turns: int = 1) -> PlannedStep:
        """Return a step of a drawn specialist."""
        return PlannedStep(id_, self.dice.choice(SPECIALISTS), after, turns)

    def draw_team(
        self,
        of: str,
        id_: str,
        shape: Shape,
        *steps: PlannedStep,
        takes_from: tuple[float, ...] | None = None,
    ) -> PlannedStep:
        """Return a step of the job `of` that a child job does.

        Args:
            steps: steps of the child job; drawn by its shape if they are left out.
            takes_from: possible durations of the child's calls in seconds; None: the usual ones.
        """
        name = f"{of}-{id_}"
        child = PlannedJob(name, shape, steps or self.draw_steps(shape, name), self.seed, parent=of)
        if takes_from:
            child = replace(child, takes_from=takes_from)
        return PlannedStep(id_, CHILD_JOB_SPECIALIST, team=child)

    def draw_next_job(self, name: str) -> PlannedJob:
        """Return the job that follows the job of this name."""
        shape, mode = self.dice.choice(((Shape.PARALLEL, Mode.TEAM), (Shape.ALONE, Mode.SINGLE)))
        later = f"{name}-then"
        steps = self.draw_steps(shape, later)
        return PlannedJob(later, shape, steps, self.seed, mode=mode, follows=name)

    def draw_finder(self, name: str) -> PlannedJob:
        """Return the job that finds the note of the job of this name."""
        step = PlannedStep("answer", KEEPER, turns=FINDS_AT)
        later = f"{name}-recall"
        return PlannedJob(later, Shape.RECALLED, (step,), self.seed, mode=Mode.SINGLE, follows=name)

    def draw_fork(self, name: str, last: PlannedStep) -> PlannedJob:
        """Return the fork of the job of this name from its last step. It has no other step,
        because all others keep their results.
        """
        step = PlannedStep(last.id, last.specialist)
        fork = f"{name}{FORK_SUFFIX}"
        return PlannedJob(fork, Shape.FORK, (step,), self.seed, mode=Mode.PIPELINE, follows=name)

    def draw_steps(self, shape: Shape, name: str) -> tuple[PlannedStep, ...]:
        if shape in CHORDS:
            return self._draw_chord_steps(shape)
        if shape in FEATURES:
            return self._draw_feature_steps(shape)
        return self._draw_tree_steps(shape, name) or self._draw_other_steps(shape)

    def _draw_chord_steps(self, shape: Shape) -> tuple[PlannedStep, ...]:
        match shape:
            case Shape.DIAMOND:
                return (
                    self.draw_step("a"),
                    self.draw_step("b", "a"),
                    self.draw_step("c", "a", turns=2),
                    self.draw_step("d", "b", "c"),
                )
            case Shape.TOOLS:
                return (self.draw_step("a", turns=3), self.draw_step("b", turns=3))
            case Shape.TIGHT:
                return tuple(map(self.draw_step, TIGHT_STEPS))
            case Shape.TIGHT_TOKENS | Shape.TIGHT_MONEY:
                # one specialist, because the worst case of its calls is known
                return tuple(PlannedStep(id_, TIGHT_SPECIALIST) for id_ in TIGHT_STEPS)
            case Shape.WRITTEN:
                return (self.draw_step("a"), self.draw_step("b"))
            case _:
                return (self.draw_step("a"), self.draw_step("b"), self.draw_step("c"))

    def _draw_tree_steps(self, shape: Shape, name: str) -> tuple[PlannedStep, ...]:
        """Return the steps of a shape with a join or a child job; empty for other shapes."""
        match shape:
            case Shape.JOINED:
                late = self.draw_step("c", turns=3)
                if self.dice.random() < 0.5:
                    late = self.draw_team(name, "c", Shape.DIAMOND, takes_from=(LATE_S,))
                parts = (self.draw_step("a"), self.draw_step("b"), late)
                return (
                    *parts,
                    PlannedStep("d", self.dice.choice(SPECIALISTS), ("a", "b", "c"), enough=2),
                )
            case Shape.TEAMS:
                below = [self.draw_step("a"), self.draw_step("b", "a")]
                if self.dice.random() < 0.5:
                    below.append(self.draw_team(f"{name}-x", "y", Shape.WRITTEN))
                return (
                    self.draw_team(name, "x", Shape.PARALLEL, *below),
                    self.draw_step("a"),
                    self.draw_step("w", "x", "a"),
                )
            case Shape.TIGHT_TREE:
                return (
                    self.draw_team(name, "x", Shape.TIGHT),
                    self.draw_team(name, "y", Shape.TIGHT),
                )
            case Shape.CALLED_OFF:
                return (
                    self.draw_team(name, "x", shape, self.draw_step("a"), self.draw_step("b")),
                    self.draw_step("a"),
                )
            case _:
                return ()

    def _draw_feature_steps(self, shape: Shape) -> tuple[PlannedStep, ...]:
        match shape:
            case Shape.SWITCHED:
                return (
                    PlannedStep("a", SWITCHING, turns=3),
                    PlannedStep("b", SWITCHING, turns=3),
                    self.draw_step("c", "a", "b"),
                )
            case Shape.BATCHED:
                return (
                    self.draw_step("a", turns=2),
                    self.draw_step("b", turns=2),
                    self.draw_step("c", "a", "b"),
                )
            case Shape.EXTERNAL:
                return (PlannedStep("a", EXTERNAL, turns=3), self.draw_step("b", "a"))
            case Shape.SHORTENED:
                return (PlannedStep("a", SKIMMER, turns=SKIMMER_TURNS), self.draw_step("b", "a"))
            case Shape.FORKED:
                return (self.draw_step("a"), self.draw_step("b"), self.draw_step("d", "a", "b"))
            case _:
                return (PlannedStep("a", KEEPER, turns=5), self.draw_step("b", "a"))

    def _draw_other_steps(self, shape: Shape) -> tuple[PlannedStep, ...]:
        match shape:
            case Shape.ALONE:
                steps = [self.draw_step("answer", turns=self.dice.choice((1, 3)))]
            case Shape.REPEATED:
                ids = [f"{REPEATED}_{number:04d}" for number in range(1, LINES + 1)]
                specialist = self.dice.choice(SPECIALISTS)
                steps = [PlannedStep(id_, specialist) for id_ in ids]
                steps.append(self.draw_step("w", *ids))
            case Shape.NEEDY | Shape.HELPED:
                asks = PlannedStep(
                    "b",
                    self.dice.choice(SPECIALISTS),
                    attempts=(PlannedOutcome.NEEDS_INPUT, PlannedOutcome.OK),
                )
                helper = replace(
                    self.draw_step("b_help", turns=self.dice.choice((1, 3))), helps="b"
                )
                steps = [self.draw_step("a"), asks, self.draw_step("c", "b")]
                if shape is Shape.HELPED:
                    steps.append(helper)
            case Shape.FAILING:
                fails = (PlannedOutcome.FAILED,) * self.dice.choice((1, 3))
                retried_step = PlannedStep(
                    "b", self.dice.choice(NOT_ALL_ROUND), attempts=(*fails, PlannedOutcome.OK)
                )
                steps = [self.draw_step("a"), retried_step, self.draw_step("c", "b")]
            case Shape.ADDED:
                steps = [
                    self.draw_step("a"),
                    self.draw_step("b"),
                    PlannedStep("e", self.dice.choice(SPECIALISTS), ("a",), is_added=True),
                ]
            case Shape.CHANGED:
                dropped_step = PlannedStep(
                    "d", self.dice.choice(SPECIALISTS), ("c",), is_dropped=True
                )
                steps = [
                    self.draw_step("a"),
                    self.draw_step("b", "a", turns=3),
                    self.draw_step("c", "b"),
                    dropped_step,
                ]
            case _:
                steps = [self.draw_step("a"), self.draw_step("b")]
        return tuple(steps)
